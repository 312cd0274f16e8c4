// SPDX-License-Identifier: Apache-2.0

// The device that computes: the interface between the step loop and a CPU or a GPU. Newcomers start with
// gradient_device.h, which has the execution model, continue with host_device.cc, the shortest
// implementation, and then read worker/compute/cuda/cuda_device.cc.
//
// A model's work (engine::Model::Enqueue) is on the device's compute stream. Update and Hash give the bits of
// worker/compute/optimizer and base/hash.h on every device. The gradients of a model are bit-identical on
// devices of equal Fingerprint and Plan.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "worker/compute/device/gradient_device.h"
#include "worker/compute/engine/model.h"
#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::device {

// Inputs of an update that only the device knows when the update is enqueued, so that the host need not wait
// for them: the gradient is clipped by `norm`, and nothing is written unless `contributors` equals
// `required_contributors`. Shape of both spans: (1), device memory.
struct UpdateCondition {
  std::span<const double> norm;
  std::span<const int32_t> contributors;
  int32_t required_contributors = 1;
};

class Device : public GradientDevice {
 public:
  // The algorithms that were chosen by measurement (GEMM, attention), complete once the models exist; empty
  // where nothing is measured. A joining member adopts the plan of the others.
  virtual std::string Plan() const = 0;
  // Errors: kInvalid when this device cannot run the algorithms of `plan`.
  virtual Status AdoptPlan(const std::string& plan) = 0;

  // Creates a model whose parameters and gradients are device memory; batches and the parameters of
  // Initialise are host memory. REQUIRES: the device outlives the model.
  virtual Result<std::unique_ptr<engine::Model>> CreateModel(const engine::ModelConfig& config) = 0;

  // Enqueues one optimizer step over all parameters. Ignores scalars.gradient_scale, which the device derives
  // from condition.norm. Afterwards `hashes` are those of the arrays slices.next_*. REQUIRES: a Sync since
  // the previous Update.
  virtual Status Update(const optimizer::Config& config, const optimizer::StepScalars& scalars,
                        const engine::Layout& layout, const optimizer::Slices& slices,
                        const UpdateCondition& condition, const optimizer::ChunkHashes& hashes) = 0;

  // Enqueues HashChunks (base/hash.h) of `values`, a multiple of engine::kBlock elements. Both spans are
  // device memory.
  virtual Status Hash(std::span<const float> values, std::span<uint64_t> hashes) = 0;
};

}  // namespace ringmaster::device
