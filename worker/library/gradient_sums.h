// SPDX-License-Identifier: Apache-2.0

// GradientSums adds the gradients of a step's micro-batches over all workers. The program passes the gradient
// of each tensor; those of a worker's last micro-batch start their all-reduce while the program computes the
// next ones.
//
// With exact numerics the sums are integers (worker/compute/numerics/exact.h), so the result depends neither
// on the number of workers nor on the owner of a micro-batch, and a step that was interrupted keeps the
// micro-batches that the sums contain (worker/trainer/partial_sums.h). With fast numerics they are floats.
//
// An attempt at a step: Begin, then for each micro-batch BeginMicroBatch, Add, EndMicroBatch, then Reduce. A
// step is committed by Commit. An attempt that does not get there is ended by Abandon, before its
// communicator is destroyed.
//
// Not thread-safe. Shapes: a tensor has `elements` floats; inside, tensors are padded to whole blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/compute/engine/layout.h"
#include "worker/fabric/fabric.h"
#include "worker/library/background_reduce.h"
#include "worker/trainer/partial_sums.h"

namespace ringmaster::library {

struct Tensor {
  std::string name;
  int64_t elements = 0;
  bool in_norm = true;  // a gradient, not a running statistic
};

class GradientSums {
 public:
  struct Options {
    std::vector<Tensor> tensors = {};  // in the order in which backward finishes them
    int micro_batches = 0;
    bool exact = true;
    int limbs = 1;  // of exact sums
  };
  enum class Outcome {
    kReduced,
    kRepeat,     // a value exceeded the range of its block: attempt the step again
    kNotFinite,  // a gradient or a loss is infinite or not a number
  };
  struct Reduced {
    Outcome outcome = Outcome::kReduced;
    double loss = 0;  // mean over the micro-batches
    double norm = 0;  // of the mean gradient
    bool stop_at_boundary = false;
    bool finishes = false;  // a member ended the run before this step: see AttemptNothing
    bool goes_on = false;   // a member computed the step
    std::string culprit;    // kNotFinite: name of a tensor; empty: only the loss
  };

  // Allocates memory of the fabric: 4 * limbs bytes per element, and 8 per block of 1024. Errors: kExhausted.
  static Result<std::unique_ptr<GradientSums>> Create(fabric::Fabric* fabric, Options options);

  // Begins an attempt at a step in which this worker owns the micro-batches [first, end). `version` changes
  // whenever the state changes. `comm` lives until Reduce or Abandon.
  void Begin(fabric::Communicator* comm, uint64_t version, int first, int end);
  // Returns whether micro-batch v must be computed: otherwise the sums contain it. REQUIRES: v is in the
  // share.
  bool BeginMicroBatch(int v);
  // Shape of `values`: (elements). REQUIRES: within a micro-batch, once per tensor.
  void Add(int tensor, std::span<const float> values);
  // Tensors that were not added count as zero.
  void EndMicroBatch(double loss);
  bool in_micro_batch() const { return current_.has_value(); }
  bool Complete() const;  // all micro-batches of the share are in the sums
  // The member ends the run before this step. It takes part in the exchange without gradients, so that all
  // members learn of it, also those that compute the step because their program did not end the run.
  void AttemptNothing();

  // Collective. REQUIRES: Complete(). `wants_to_stop` is this worker's vote for a stop after the step. After
  // kReduced, Read may be called until the next Begin; after kRepeat or an error, Begin.
  Result<Reduced> Reduce(const std::function<bool()>& wants_to_stop);
  // Ends an attempt without a result, and waits for the operations in flight. REQUIRES: they were aborted, or
  // every rank does the same.
  void Abandon();
  // Writes the mean of the tensor over the micro-batches.
  void Read(int tensor, std::span<float> values) const;
  // The step is committed: the next one starts with the exponents that follow from its maxima.
  void Commit();

  // Part of the training state: the exponents with which the next step begins. Empty with fast numerics.
  std::span<int32_t> exponents() { return exponents_; }
  // New members start a step with the exponents of the state, not with those that an attempt has raised.
  void ResetAttempts();

  const std::vector<Tensor>& tensors() const { return options_.tensors; }
  int micro_batches() const { return options_.micro_batches; }
  // The state was replaced by one of `step` committed steps.
  void SetStep(int64_t step) { step_ = step; }

 private:
  explicit GradientSums(Options options);

  std::span<int32_t> SumsOf(int tensor) const;
  std::span<float> FloatsOf(int tensor) const;
  const engine::Parameter& ParameterOf(int tensor) const {
    return layout_.parameters[static_cast<size_t>(tensor)];
  }
  void AddExact(int tensor, std::span<const float> values, bool overwrite);
  void FillZero(int tensor);
  // Starts the all-reduce of the buckets that are complete, in order.
  void ReduceReady();
  void DecodeInPlace(int tensor);
  double Norm() const;
  std::string FirstNotFinite(std::span<const int32_t> maxima) const;

  const Options options_;
  engine::Layout layout_;
  std::vector<int> bucket_ends_;  // buckets are tensors [bucket_ends_[i - 1], bucket_ends_[i])
  int quantum_bits_ = 0;
  std::span<int32_t>
      sums_;  // shape (elements, limbs), by block; after Reduce, floats at the front of each tensor
  std::span<int32_t> exchange_;  // memory of the ScalarExchange
  std::vector<int32_t> maxima_;  // of this attempt, by block
  std::vector<int32_t> exponents_;
  std::vector<int32_t> attempt_exponents_;
  std::vector<int32_t> next_exponents_;
  std::vector<float> block_;    // scratch: one padded block
  std::vector<float> decoded_;  // scratch: one decoded block
  trainer::PartialSums partial_;
  BackgroundReduce background_;

  fabric::Communicator* comm_ = nullptr;  // of the attempt
  int64_t step_ = 0;
  int first_ = 0;
  int end_ = 0;
  std::optional<int> current_;  // micro-batch
  bool last_ = false;           // it is the last one that this worker computes in this attempt
  bool finishes_ = false;       // AttemptNothing was called
  size_t next_bucket_ = 0;      // the first that is not being reduced yet
};

}  // namespace ringmaster::library
