// SPDX-License-Identifier: Apache-2.0

// One training step, top to bottom: next positions, forward and backward over the micro-batches this rank
// owns, all-reduce of each bucket while backward goes on, norm, clip, update, one small exchange of
// everything else, commit.
//
// Where the device sums buckets itself, or is alone, the update is a guess that the exchange confirms: that
// no block outgrew its exponent, and that all is finite. It goes into the next image, so a guess that was
// wrong costs the time and nothing else; and the device is given the whole step before anybody waits for it.
// Where buckets travel through the host, which waits for them anyhow, the exchange comes first.
//
// What the next image held is the undo of the last step. It may go when all members have committed that step,
// which is when all have sent gradients of this one. A device's collectives that are ended by a failure leave
// garbage, so the update looks by itself whether a sum over all members, made after all buckets, came to be
// (`contributors_`).
//
// The result is a pure function of (state, data): not of the world size, the owner of a micro-batch, or
// timing, as long as numerics are exact. On an error the current image is unchanged. Thread rule: main
// thread.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "worker/agent/trainer_page.h"
#include "worker/compute/device/device.h"
#include "worker/compute/engine/model.h"
#include "worker/data/dataset.h"
#include "worker/fabric/fabric.h"
#include "worker/trainer/comm_queue.h"
#include "worker/trainer/host_device_buffer.h"
#include "worker/trainer/reader.h"
#include "worker/trainer/run_config.h"
#include "worker/trainer/scalar_exchange.h"
#include "worker/trainer/state.h"

namespace ringmaster::trainer {

// What one step tells. All but stop_at_boundary are equal on every rank.
struct StepResult {
  double loss = 0;  // mean over the step's samples
  double learning_rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t samples = 0;
  bool stop_at_boundary = false;  // some rank asked all to stop after this commit
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
    agent::TrainerPage* page = nullptr;  // who waits for peers says so there
  };
  // Everything outlives the Stepper. Allocates gradients and accumulators.
  static Result<std::unique_ptr<Stepper>> Create(const Parts& parts);

  // `wants_to_stop` is this rank's vote, read as late as possible. kInvalid when the gradient is not finite:
  // the job cannot go on. kGone: the device is lost. kCancelled and the fabric's errors: the generation is
  // over.
  Result<StepResult> Run(const Communicators& comms, const std::atomic<bool>* cancel,
                         const std::function<bool()>& wants_to_stop);

  // Contiguous share of V micro-batches that a rank owns.
  static int FirstMicroBatch(int micro_batches, int world, int rank) {
    return static_cast<int>(static_cast<int64_t>(micro_batches) * rank / world);
  }

 private:
  explicit Stepper(const Parts& parts);

  // All up to the commit, with the exponents at hand; what it finds out is on the exchange and in norm_.
  // Nothing is under way afterwards, whatever the answer.
  Status AttemptStep(const Communicators& comms, const data::StepSamples& samples,
                     const std::atomic<bool>* cancel, const std::function<bool()>& wants_to_stop,
                     ScalarExchange* exchange);
  Status EnqueueGradients(const Communicators& comms, const data::StepSamples& samples,
                          const std::atomic<bool>* cancel);
  Status EnqueueBucket(const Communicators& comms, int bucket, bool first, bool last);
  // Waits for the device's own part: losses and maxima.
  Status CollectLosses(const Communicators& comms, ScalarExchange* exchange);
  // Enqueues all that follows the sums of buckets.
  Status EnqueueUpdate(const Communicators& comms, const data::StepSamples& samples);
  Status DecodeGradient(double scale);
  Status Update(const Communicators& comms);
  // What the host has to find out from the maxima of all, while the device is still busy.
  void CheckExponents(ScalarExchange* exchange);

  const Parts parts_;
  const engine::Layout& layout_;
  const int quantum_bits_;
  MicroBatchReader reader_;
  CommQueue queue_;
  std::span<float> gradients_;          // on the device: of one micro-batch; later the decoded sum
  HostDeviceBuffer<int32_t> sums_;      // exact: integer sums over the owned micro-batches
  HostDeviceBuffer<float> float_sums_;  // fast: the same memory
  HostDeviceBuffer<int32_t> exchange_;
  HostDeviceBuffer<int32_t> maxima_;        // the exchange's
  HostDeviceBuffer<int32_t> exponents_;     // in force for this try of the step
  HostDeviceBuffer<int32_t> contributors_;  // how many members' gradients are in the sums
  HostDeviceBuffer<double> norm_;
  bool overflowed_ = false;
  bool finite_ = true;
  std::vector<int32_t> next_exponents_;  // exponents of the step after this one
};

}  // namespace ringmaster::trainer
