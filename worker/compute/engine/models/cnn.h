// SPDX-License-Identifier: Apache-2.0

// A small convolutional network: stages of 3x3 convolution, ReLU and 2x2 max-pooling, each with twice the
// channels of the previous one, then one dense layer.
//
// Shapes: activations (B, H, W, C), channels last; weights of a convolution (3, 3, in, out), of the dense
// layer (in, out) with `in` over (row, column, channel).
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
    Buffer<float> conv;      // (B, H, W, out), after ReLU
    Buffer<float> pooled;    // (B, H / 2, W / 2, out)
    Buffer<uint8_t> winner;  // as pooled: the cell of each window that has the maximum
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

  Buffer<float> images_;  // (B, H, W, C)
  std::vector<StageActivations> act_;
  Buffer<float> partial_;         // gradients of weight and bias: one row per group of samples
  std::vector<Scratch> scratch_;  // one per thread
};

}  // namespace ringmaster::engine
