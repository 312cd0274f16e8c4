// One training step, top to bottom: next positions, forward and backward over the micro-batches this rank
// owns, all-reduce of each bucket while backward goes on, one small exchange of everything else, norm, clip,
// update, commit.
//
// The result is a pure function of (state, data): not of the world size, the owner of a micro-batch, or
// timing, as long as numerics are exact. On an error the state is unchanged. Thread rule: main thread.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "worker/agent/trainer_side.h"
#include "worker/data/dataset.h"
#include "worker/engine/model.h"
#include "worker/fabric/communicator.h"
#include "worker/fabric/fabric.h"
#include "worker/trainer/board.h"
#include "worker/trainer/comm_queue.h"
#include "worker/trainer/reader.h"
#include "worker/trainer/run_config.h"
#include "worker/trainer/state.h"

namespace ringmaster::trainer {

// What one step tells. All but stand_still are equal on every rank.
struct StepResult {
  double loss = 0;  // mean over the step's samples
  double learning_rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t samples = 0;
  bool stand_still = false;  // some rank asked all to stop after this commit
};

class Stepper {
 public:
  struct Parts {
    const RunConfig* config;
    const data::Dataset* dataset;
    engine::Model* model;
    fabric::Fabric* fabric;
    TrainState* state;
    agent::TrainerSlot* slot = nullptr;  // who waits for peers says so there
  };
  // Everything outlives the Stepper. Allocates gradients and accumulators.
  static Result<std::unique_ptr<Stepper>> Create(const Parts& parts);

  // `wants_to_stop` is this rank's vote, read as late as possible. kInvalid when the gradient is not finite:
  // the job cannot go on. kCancelled and the fabric's errors: the generation is over.
  Result<StepResult> Run(fabric::Communicator* comm, const std::atomic<bool>* cancel,
                         const std::function<bool()>& wants_to_stop);

  // Contiguous share of V micro-batches that a rank owns.
  static int FirstMicroBatch(int micro_batches, int world, int rank) {
    return static_cast<int>(static_cast<int64_t>(micro_batches) * rank / world);
  }

 private:
  explicit Stepper(const Parts& parts);

  Status Gradients(fabric::Communicator* comm, const data::StepSamples& samples,
                   const std::atomic<bool>* cancel, Board* board);
  void TakeBucket(fabric::Communicator* comm, int bucket, bool first, bool last, Board* board);
  void Update(const StepResult& result);

  const Parts parts_;
  const engine::Layout& layout_;
  const int quantum_bits_;
  MicroBatchReader reader_;
  CommQueue queue_;
  std::vector<float> gradients_;  // of one micro-batch; later the decoded sum
  std::span<int32_t> sums_;       // exact: integer sums over the owned micro-batches
  std::span<float> float_sums_;   // fast: the same memory
  std::span<int32_t> board_memory_;
  std::vector<int32_t> exponents_;  // in force for this try of the step
};

}  // namespace ringmaster::trainer
