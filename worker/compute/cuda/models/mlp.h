// SPDX-License-Identifier: Apache-2.0

// Fully connected layers with ReLU between them, on a GPU (worker/compute/engine/models/mlp.h).
#pragma once

#include <array>
#include <vector>

#include "worker/compute/cuda/models/image_model.h"

namespace ringmaster::cuda {

template <class T>
class Mlp final : public ImageModel<T> {
 public:
  Mlp(const engine::ModelConfig& config, Stream stream, const Algorithms& algorithms,
      const ModelOptions& options);

 private:
  using Base = ImageModel<T>;

  Mlp(const engine::ModelConfig& config, engine::MlpTensors tensors, Stream stream,
      const Algorithms& algorithms, const ModelOptions& options);

  Status Body(const std::atomic<bool>* cancel) override;
  Status BodyBackward(float* grads, engine::BucketNotifier& notifier,
                      const std::atomic<bool>* cancel) override;

  // The input of layer `i` and its gradient.
  const T* Input(size_t i) const;
  T* InputGradient(size_t i) { return d_hidden_[i % 2].get(); }
  const T* HeadInput() const override { return Input(dense_.size() - 1); }
  T* HeadInputGradient() override { return InputGradient(dense_.size() - 1); }

  std::vector<engine::DenseTensors> dense_;  // by depth; the last layer is the head
  Buffer<Bf16> rounded_;                     // images in bfloat16; empty when T is float
  std::vector<Buffer<T>> hidden_;            // (B, width): outputs after ReLU of every layer except the last
  std::array<Buffer<T>, 2> d_hidden_;  // (B, width): gradients of a layer's output and input, alternating
  Buffer<float> scratch_;
};

extern template class Mlp<float>;
extern template class Mlp<Bf16>;

}  // namespace ringmaster::cuda
