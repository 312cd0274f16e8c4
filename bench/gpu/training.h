// SPDX-License-Identifier: Apache-2.0

// Trains GPT-2 on one GPU by the product's step (worker/trainer/step.h) on random tokens. bench/gpu measures
// it and compares its losses.
//
// Not thread-safe; one thread uses it.
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
    int64_t dataset_samples = 0;  // a model can memorise a small number
    double learning_rate = 3e-4;
  };
  static Result<std::unique_ptr<Training>> Create(const Setup& setup);

  // Runs one step. Returns before the update is complete.
  Result<trainer::StepResult> Step();
  // Waits for all enqueued work.
  Status Finish() { return device_->Sync(); }

  // Writes what another program needs to start from the same state. REQUIRES: no step has run. Files:
  // weights.f32, the parameter arena; layout.json, the offset of each parameter and whether it decays;
  // tokens.i32, the inputs and targets of each step. Shape: (steps, 2, samples, context).
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
