// SPDX-License-Identifier: Apache-2.0

// A small convolutional network: stages of 3x3 convolution, ReLU and 2x2 max-pooling, each with twice the
// channels of the one before, then one dense layer. Images lie channels last inside; weights of a convolution
// are [3, 3, in, out], of the dense layer [in, out] over (row, column, channel).
#pragma once

#include <vector>

#include "worker/compute/engine/models/model_base.h"

namespace ringmaster::engine {

class Cnn final : public ModelBase {
 public:
  Cnn(const ModelConfig& config, const kernels::Kernels& kernels);
  int64_t ActivationBytes() const override;

 private:
  Cnn(const ModelConfig& config, CnnTensors tensors, const kernels::Kernels& kernels);

  struct StageActivations {
    Buffer<float> conv;  // after ReLU
    Buffer<float> pooled;
    Buffer<uint8_t> winner;  // of each window
    Buffer<float> d_pooled;
  };
  struct Scratch {
    Buffer<float> patches;
    Buffer<float> d_conv;
  };

  Status Forward(const float* params, const Batch& batch, const std::atomic<bool>* cancel) override;
  Status Backward(const float* params, const Batch& batch, float* grads, BucketNotifier& notifier,
                  const std::atomic<bool>* cancel) override;

  void ForwardStage(const float* params, size_t stage, int64_t samples);
  void BackwardStage(const float* params, size_t stage, int64_t samples, float* grads);
  const float* Input(size_t stage) const { return stage == 0 ? images_.get() : act_[stage - 1].pooled.get(); }

  std::vector<ConvTensors> stages_;
  DenseTensors dense_;

  Buffer<float> images_;  // channels last
  std::vector<StageActivations> act_;
  Buffer<float> partial_;         // gradients of weight and bias, one row per group of samples
  std::vector<Scratch> scratch_;  // one per thread
};

}  // namespace ringmaster::engine
