// SPDX-License-Identifier: Apache-2.0

// Stages of 3x3 convolution, ReLU and 2x2 max-pooling, then one dense layer, on a GPU
// (worker/compute/engine/models/cnn.h, which has the shapes). A convolution is one product with the patches
// of all samples; backward recomputes the patches.
#pragma once

#include <vector>

#include "worker/compute/cuda/kernels/conv.h"
#include "worker/compute/cuda/models/image_model.h"

namespace ringmaster::cuda {

template <class T>
class Cnn final : public ImageModel<T> {
 public:
  Cnn(const engine::ModelConfig& config, Stream stream, const Algorithms& algorithms,
      const ModelOptions& options);

 private:
  using Base = ImageModel<T>;

  struct StageActivations {
    Buffer<T> conv;          // (B, H, W, out), after ReLU
    Buffer<T> pooled;        // (B, H / 2, W / 2, out)
    Buffer<uint8_t> winner;  // as pooled: the cell of each window that has the maximum
    Buffer<T> d_pooled;
  };

  Cnn(const engine::ModelConfig& config, engine::CnnTensors tensors, Stream stream,
      const Algorithms& algorithms, const ModelOptions& options);

  Status Body(const std::atomic<bool>* cancel) override;
  Status BodyBackward(float* grads, engine::BucketNotifier& notifier,
                      const std::atomic<bool>* cancel) override;

  void ForwardStage(size_t i);
  void BackwardStage(size_t i, float* grads);
  // The input of stage `i`, and the shapes of input and convolution.
  const T* Input(size_t i) const { return i == 0 ? images_.get() : act_[i - 1].pooled.get(); }
  kernels::ImageShape InputShape(size_t i) const;
  kernels::ImageShape ConvShape(size_t i) const;
  int64_t Patches(size_t i) const { return this->samples() * stages_[i].Pixels(); }
  const T* HeadInput() const override { return act_.back().pooled.get(); }
  T* HeadInputGradient() override { return act_.back().d_pooled.get(); }

  std::vector<engine::ConvTensors> stages_;
  Buffer<T> images_;  // (B, H, W, C)
  std::vector<StageActivations> act_;
  Buffer<T> patches_;  // reused for the gradient of the patches, once the gradient of the weight is computed
  Buffer<T> d_conv_;
  Buffer<float> scratch_;
};

extern template class Cnn<float>;
extern template class Cnn<Bf16>;

}  // namespace ringmaster::cuda
