// SPDX-License-Identifier: Apache-2.0

// Fully connected layers with ReLU between them, for flattened images.
#pragma once

#include <vector>

#include "worker/compute/engine/models/model_base.h"

namespace ringmaster::engine {

class Mlp final : public ModelBase {
 public:
  Mlp(const ModelConfig& config, const kernels::Kernels& kernels);
  int64_t ActivationBytes() const override;

 private:
  Mlp(const ModelConfig& config, MlpTensors tensors, const kernels::Kernels& kernels);

  Status Forward(const float* params, const Batch& batch, const std::atomic<bool>* cancel) override;
  Status Backward(const float* params, const Batch& batch, float* grads, BucketNotifier& notifier,
                  const std::atomic<bool>* cancel) override;

  std::vector<DenseTensors> dense_;
  std::vector<Buffer<float>> hidden_;  // (B, width): outputs after ReLU of every layer except the last
  Buffer<float> d_hidden_[2];          // (B, width): gradients of a layer's output and input, alternating
};

}  // namespace ringmaster::engine
