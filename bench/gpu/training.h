// SPDX-License-Identifier: Apache-2.0

// GPT-2 trained on one GPU by the product's own step (worker/trainer/step.h) on random tokens: what bench/gpu
// measures and whose losses it compares.
//
// Thread rule: one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "worker/compute/device/device.h"
#include "worker/data/dataset.h"
#include "worker/fabric/fabric.h"
#include "worker/trainer/run_config.h"
#include "worker/trainer/state.h"
#include "worker/trainer/step.h"

namespace ringmaster::bench {

class Training {
 public:
  struct Setup {
    engine::ModelConfig model;  // max_samples: of a micro-batch
    int micro_batches = 1;
    bool exact = true;
    int64_t dataset_samples = 0;  // few of them can be learned by heart
    double learning_rate = 3e-4;
  };
  static Result<std::unique_ptr<Training>> Create(const Setup& setup);

  // One step. The update is under way when it returns.
  Result<trainer::StepResult> Step();
  // Waits for all that is under way.
  Status Finish() { return device_->Sync(); }

  // What another program needs to begin at the same place, before the first step: weights.f32, the arena as
  // it lies; layout.json, where each parameter is in it and whether it decays; tokens.i32, [steps, 2,
  // samples, context] with the inputs and the targets of each step.
  Status Write(const std::string& folder, int64_t steps);

  const engine::Model& model() const { return *model_; }
  device::Device& device() { return *device_; }

 private:
  trainer::RunConfig config_;
  std::unique_ptr<data::Dataset> dataset_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<engine::Model> model_;
  std::unique_ptr<trainer::TrainState> state_;
  std::unique_ptr<trainer::Stepper> stepper_;
  std::unique_ptr<fabric::Communicator> alone_;
  std::atomic<bool> cancel_{false};
};

}  // namespace ringmaster::bench
