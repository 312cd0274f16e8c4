// SPDX-License-Identifier: Apache-2.0

// Stepper runs one training step: it takes the next samples, runs forward and backward over the micro-batches
// that this rank owns, all-reduces each gradient bucket while backward continues, computes the norm, clips,
// updates, exchanges all other numbers in one small all-reduce, and commits. Start reading at Stepper::Run.
//
// Order. Where the device reduces buckets itself, or a worker trains alone, the update is speculative: the
// exchange confirms afterwards that no block exceeded its exponent and that all values are finite. The update
// writes the next image, so a wrong guess costs only time, and the device gets the whole step before the host
// waits for it (UpdateThenExchange). Where buckets travel through the host, which waits for them anyway, the
// exchange comes first (ExchangeThenUpdate).
//
// Undo. The next image holds the state before the last step until the update overwrites it. It may be
// overwritten once all members have committed the last step, that is, once all have sent gradients of this
// one. A failure may end a device's collectives with garbage, so the update itself checks that a sum over all
// members, reduced after all buckets, is complete (`contributors_`).
//
// Interruption. With exact numerics the micro-batches that were added before an interruption stay in the sums
// (partial_sums.h): the next attempt at the step, with other members, computes only the rest of its share.
//
// The result is a pure function of (state, data). With exact numerics it depends neither on the world size,
// nor on the owner of a micro-batch, nor on timing. After an error the current image is unchanged.
//
// Not thread-safe; main thread only.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/agent/trainer/trainer_page.h"
#include "worker/compute/device/device.h"
#include "worker/compute/engine/model.h"
#include "worker/data/dataset.h"
#include "worker/fabric/fabric.h"
#include "worker/trainer/comm_queue.h"
#include "worker/trainer/host_device_buffer.h"
#include "worker/trainer/join_transfer.h"
#include "worker/trainer/partial_sums.h"
#include "worker/trainer/reader.h"
#include "worker/trainer/run_config.h"
#include "worker/trainer/scalar_exchange.h"
#include "worker/trainer/state.h"

namespace ringmaster::trainer {

// Results of one step. All fields are equal on every rank, except for those of this member.
struct StepResult {
  double loss = 0;  // mean over the step's samples
  double learning_rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t samples = 0;
  bool stop_at_boundary = false;  // some rank requested a stop after this commit
  // Nothing is committed: the members began the step with different states.
  bool states_differ = false;
  // Of this member:
  Duration busy{};            // rendezvous::BusyTime
  int32_t micro_batches = 0;  // that it computed
};

class Stepper {
 public:
  struct Parts {
    const RunConfig* config;
    const data::Dataset* dataset;
    device::Device* device;
    engine::Model* model;
    fabric::Fabric* fabric;
    TrainState* state;
    agent::TrainerPage* page = nullptr;  // shows the agent when this rank waits for peers
  };
  // Allocates gradients and accumulators. REQUIRES: all parts outlive the Stepper.
  static Result<std::unique_ptr<Stepper>> Create(const Parts& parts);

  // Runs one step. `wants_to_stop` returns this rank's vote for a stop after the step; it is called as late
  // as possible. Errors: kInvalid when the gradient is not finite or the data is wrong, so the job cannot
  // continue; kGone when the device or the storage of the data is lost; kCancelled and the fabric's errors
  // when the generation has ended. While `join`, which may be null, is not done, the step also sends pieces
  // of the state to joining members.
  Result<StepResult> Run(const Communicators& comms, const std::atomic<bool>* cancel,
                         const std::function<bool()>& wants_to_stop, JoinTransfer* join = nullptr);

  // Sends everything that is left of the state, between two steps.
  Status FinishJoin(const Communicators& comms, JoinTransfer* join);

 private:
  static constexpr int kNone = -1;

  // Where the reader is: at micro-batch `first` of the step `samples`. Unset within a step.
  struct ReaderPosition {
    data::StepSamples samples;
    int first = 0;
    int end = 0;
    bool operator==(const ReaderPosition&) const = default;
  };

  explicit Stepper(const Parts& parts);

  // Runs a step up to its commit with the current exponents. Its results are in `exchange`, norm_,
  // overflowed_ and finite_. No operation is in flight when it returns, even after an error.
  Status AttemptStep(const Communicators& comms, const data::StepSamples& samples,
                     const std::atomic<bool>* cancel, const std::function<bool()>& wants_to_stop,
                     ScalarExchange* exchange);
  // The two orders of a step (see above). Both only enqueue the device's last work.
  Status UpdateThenExchange(const Communicators& comms, const data::StepSamples& samples,
                            const std::atomic<bool>* cancel, const std::function<bool()>& wants_to_stop,
                            ScalarExchange* exchange);
  Status ExchangeThenUpdate(const Communicators& comms, const data::StepSamples& samples,
                            const std::atomic<bool>* cancel, const std::function<bool()>& wants_to_stop,
                            ScalarExchange* exchange);
  Status EnqueueGradients(const Communicators& comms, const data::StepSamples& samples,
                          const std::atomic<bool>* cancel);
  // Makes the reader continue with micro-batches [first, end) of this step, if it does not do so anyway.
  void ReadFrom(const data::StepSamples& samples, int first, int end);
  // Begins an attempt: the sums keep what they contain of it already.
  Status KeepPartialSums();
  // Records an attempt that failed: which micro-batches are complete, and the maxima of their gradients.
  Status RecordPartialSums();
  // REQUIRES: `micro_batch` is kNone for a batch without samples, which adds nothing to the sums.
  Status EnqueueMicroBatch(const Communicators& comms, const engine::Batch& batch, int micro_batch, bool last,
                           const std::atomic<bool>* cancel);
  Status EnqueueBucket(const Communicators& comms, int bucket, int micro_batch, bool last);
  // Waits for the device's losses and maxima, and records the micro-batches that are complete.
  Status CollectLosses(ScalarExchange* exchange);
  // Adds this rank's vote and reduces `exchange` over all ranks.
  Status Exchange(const Communicators& comms, const std::function<bool()>& wants_to_stop,
                  ScalarExchange* exchange);
  // Sets overflowed_, finite_ and next_exponents_ from the maxima of all ranks.
  void CheckExponents(ScalarExchange* exchange);
  // Enqueues everything that follows the sums of the buckets.
  Status EnqueueUpdate(const Communicators& comms, const data::StepSamples& samples);
  Status DecodeGradient(double scale);
  Status Update(const Communicators& comms);

  const Parts parts_;
  const engine::Layout& layout_;
  const int quantum_bits_;
  const int limbs_;  // of a sum
  MicroBatchReader reader_;
  std::optional<ReaderPosition> reader_position_;
  int64_t reader_steps_ = 0;  // that the reader still reads
  CommQueue queue_;
  std::span<float> gradients_;      // on the device: of one micro-batch, then the decoded sum
  HostDeviceBuffer<int32_t> sums_;  // exact numerics: sums of limbs_ integers over the owned micro-batches
  HostDeviceBuffer<float> float_sums_;      // fast numerics: the same memory
  HostDeviceBuffer<int32_t> exchange_;      // memory of the ScalarExchange
  HostDeviceBuffer<int32_t> maxima_;        // the maxima in exchange_
  HostDeviceBuffer<int32_t> exponents_;     // of this attempt
  PartialSums partial_;                     // what sums_ and maxima_ contain
  std::vector<int32_t> partial_maxima_;     // of an attempt that failed
  std::vector<int> enqueued_;               // micro-batches (or kNone) that the model computes, in order
  HostDeviceBuffer<int32_t> contributors_;  // number of members whose gradients are in the sums
  HostDeviceBuffer<double> norm_;
  std::optional<uint64_t> digest_;  // of the state at the start of this step; nullopt: not compared
  JoinTransfer* join_ = nullptr;    // of this step; null: every rank owns micro-batches
  int owners_ = 1;                  // ranks that own micro-batches in this step
  int owner_ = 0;                   // this rank's index among them; -1: it owns none
  int first_ = 0;                   // it owns the micro-batches [first_, end_)
  int end_ = 0;
  Duration waited_{};        // for peers, in this step
  bool overflowed_ = false;  // a block exceeded its exponent in this attempt
  bool finite_ = true;
  std::vector<int32_t> next_exponents_;  // of the next step
};

}  // namespace ringmaster::trainer
