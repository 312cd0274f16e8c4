// SPDX-License-Identifier: Apache-2.0

// GradientSums adds the gradients of a step's micro-batches over all workers. The program passes the gradient
// of each tensor; those of a worker's last micro-batch start their all-reduce while the program computes the
// next ones.
//
// With exact numerics the sums are integers (worker/compute/numerics/exact.h), so the result depends neither
// on the number of workers nor on the owner of a micro-batch, and a step that was interrupted keeps the
// micro-batches that the sums contain (worker/trainer/partial_sums.h). With fast numerics they are floats.
//
// The gradients and their sums are memory of a device (worker/compute/device/gradient_device.h): the host's,
// or a GPU's. On a GPU, work is enqueued behind that of the program's stream, and only Reduce and Abandon
// wait for it. Buckets are reduced by the collectives of the devices, else through the host
// (worker/trainer/comm_queue.h). The bits of exact sums are the same on all devices.
//
// An attempt at a step: Begin, then for each micro-batch BeginMicroBatch, Add, EndMicroBatch, then Reduce. A
// step is committed by Commit. An attempt that does not get there is ended by Abandon, before its
// communicator is destroyed.
//
// Not thread-safe, but calls may come from different threads, one at a time. Shapes: a tensor has `elements`
// floats; inside, tensors are padded to whole blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/compute/device/gradient_device.h"
#include "worker/compute/engine/layout.h"
#include "worker/fabric/fabric.h"
#include "worker/trainer/comm_queue.h"
#include "worker/trainer/host_device_buffer.h"
#include "worker/trainer/partial_sums.h"
#include "worker/trainer/scalar_exchange.h"

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
    kMixed,      // some micro-batches have a weight, and some do not
  };
  struct Reduced {
    Outcome outcome = Outcome::kReduced;
    double loss = 0;  // mean over the micro-batches
    double norm = 0;  // of the mean gradient
    double weight =
        0;  // by which loss and gradients are divided: sum of the weights, or the number of micro-batches
    bool stop_at_boundary = false;
    bool finishes = false;  // a member ended the run before this step: see AttemptNothing
    bool goes_on = false;   // a member computed the step
    bool differ = false;    // the members passed different digests
    std::string culprit;    // kNotFinite: name of a tensor; empty: only the loss
  };

  // Allocates memory of the fabric: 4 * limbs bytes per element, and a few per block of 1024; on a GPU, the
  // same of its memory. Errors: kExhausted, or those of the device. REQUIRES: fabric and device outlive the
  // sums.
  static Result<std::unique_ptr<GradientSums>> Create(fabric::Fabric* fabric, device::GradientDevice* device,
                                                      Options options);

  // The stream that computes gradients and reads their means, from the next call on.
  void SetStream(device::ForeignStream stream) { stream_ = stream; }
  // Waits until the device has done the work of all calls so far.
  Status Synchronize();

  // Begins an attempt at a step in which this worker owns the micro-batches [first, end). `version` changes
  // whenever the state changes. The communicators live until Reduce or Abandon.
  Status Begin(const trainer::Communicators& comms, uint64_t version, int first, int end);
  // Returns whether micro-batch v must be computed: otherwise the sums contain it. REQUIRES: v is in the
  // share.
  bool BeginMicroBatch(int v);
  // Shape of `values`: (elements), memory of the device; the stream may change it afterwards. REQUIRES:
  // within a micro-batch, once per tensor.
  Status Add(int tensor, std::span<const float> values);
  // Tensors that were not added count as zero. With a weight, at least 0 and finite, loss and gradients are
  // those of the micro-batch times the weight. All micro-batches of a step have a weight, or none; one
  // without gradients needs none.
  Status EndMicroBatch(double loss, std::optional<double> weight = std::nullopt);
  bool in_micro_batch() const { return current_.has_value(); }
  bool Complete() const;  // all micro-batches of the share are in the sums
  // The member ends the run before this step. It takes part in the exchange without gradients, so that all
  // members learn of it, also those that compute the step because their program did not end the run.
  Status AttemptNothing();

  // Collective. REQUIRES: Complete(). `wants_to_stop` is this worker's vote for a stop after the step.
  // `digest`: of what the members must have in common; nullopt: unknown. After kReduced, Read may be called
  // until the next Begin; after kRepeat, Begin; after an error, Abandon.
  Result<Reduced> Reduce(const std::function<bool()>& wants_to_stop,
                         std::optional<uint64_t> digest = std::nullopt);
  // Ends an attempt without a result, and waits for the operations in flight. REQUIRES: they were aborted, or
  // every rank does the same.
  void Abandon();
  // Writes the mean of the tensor over the micro-batches to memory of the device, for later work of the
  // stream: that of a gradient by weight, that of a running statistic by count.
  Status Read(int tensor, std::span<float> values);
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
  GradientSums(device::GradientDevice* device, Options options);

  template <class T>
  using Buffer = trainer::HostDeviceBuffer<T>;

  int tensor_count() const { return static_cast<int>(options_.tensors.size()); }
  const engine::Parameter& ParameterOf(int tensor) const {
    return layout_.parameters[static_cast<size_t>(tensor)];
  }
  Buffer<int32_t> SumsOf(int64_t begin, int64_t end) const;  // of elements
  std::span<int32_t> SumsOf(int tensor) const;               // on the device
  std::span<float> FloatsOf(int tensor) const;               // on the device: as many as padded elements
  std::span<int32_t> BlocksOf(int tensor, std::span<int32_t> by_block) const;
  // Adds values to the sums of the tensor, or sets them; missing values count as zero.
  Status Accumulate(int tensor, std::span<const float> values, bool overwrite);
  // Starts the all-reduce of the buckets that are complete, in order.
  Status ReduceReady();
  // Waits for the all-reduces.
  Status Drain();
  // Sets divisor_ from the weights of all micro-batches. Returns false if only some have one.
  bool SumWeights(const trainer::ScalarExchange& exchange);
  double DivisorOf(int tensor) const {
    return options_.tensors[static_cast<size_t>(tensor)].in_norm ? divisor_ : options_.micro_batches;
  }
  std::string FirstNotFinite(std::span<const int32_t> maxima) const;

  const Options options_;
  device::GradientDevice* const device_;
  engine::Layout layout_;
  std::vector<int> bucket_ends_;  // buckets are tensors [bucket_ends_[i - 1], bucket_ends_[i])
  int quantum_bits_ = 0;
  // Shape (elements, limbs), by block; after Reduce, floats at the front of each tensor.
  Buffer<int32_t> sums_;
  std::span<int32_t> exchange_;  // memory of the ScalarExchange
  Buffer<double> norms_;         // by tensor
  // Shape of the following: by block.
  Buffer<int32_t> maxima_;             // of this attempt
  Buffer<int32_t> attempt_exponents_;  // the host's change between Reduce or Abandon and Begin
  std::vector<int32_t> exponents_;
  std::vector<int32_t> next_exponents_;
  trainer::PartialSums partial_;
  trainer::CommQueue queue_;

  device::ForeignStream stream_ = nullptr;
  trainer::Communicators comms_;  // of the attempt
  int64_t step_ = 0;
  int first_ = 0;
  int end_ = 0;
  std::optional<int> current_;  // micro-batch
  bool last_ = false;           // it is the last one that this worker computes in this attempt
  bool finishes_ = false;       // AttemptNothing was called
  size_t next_bucket_ = 0;      // the first that is not being reduced yet
  bool reducing_ = false;       // an all-reduce was started since the last Drain
  double divisor_ = 1;          // of the gradients of the last reduction
};

}  // namespace ringmaster::library
