// SPDX-License-Identifier: Apache-2.0

// GPT-2 on a GPU: worker/compute/engine/models/gpt.h with what follows a product fused into the next pass
// over its result (bias and GELU, bias and residual and normalisation).
#pragma once

#include <vector>

#include "worker/compute/cuda/models/device_model.h"

namespace ringmaster::cuda {

template <class T>
class Gpt final : public DeviceModel<T> {
 public:
  Gpt(const engine::ModelConfig& config, Stream stream, const Algorithms& algorithms,
      const ModelOptions& options);

 private:
  using Base = DeviceModel<T>;
  using Chunk = typename Base::Chunk;

  // What forward keeps of a block; rows are tokens.
  struct BlockActivations {
    Buffer<T> in;                // [rows, C] the residual stream before the block
    Buffer<T> ln1;               // [rows, C]
    Buffer<float> mean1, rstd1;  // [rows]
    Buffer<T> qkv, att;          // [rows, 3C], [rows, C]
    Buffer<float> lse;           // [samples, heads, T]
    Buffer<T> mid;               // [rows, C] the residual stream after attention
    Buffer<T> ln2;               // [rows, C]
    Buffer<float> mean2, rstd2;  // [rows]
    Buffer<T> fc, gelu;          // [rows, 4C]
  };
  // Where the sum of residual stream and a block's result goes, and its normalisation.
  struct Norm {
    int64_t gamma, beta;
    Buffer<T>*in, *out;
    Buffer<float>*mean, *rstd;
  };

  Gpt(const engine::ModelConfig& config, engine::GptTensors tensors, Stream stream,
      const Algorithms& algorithms, const ModelOptions& options);
  void PlanProducts();

  Status PlanMore() override;
  Status Body(const std::atomic<bool>* cancel) override;
  void Head(const Chunk& chunk) override;
  void HeadBackward(const Chunk& chunk, float* grads) override;
  Status BodyBackward(float* grads, engine::BucketNotifier& notifier,
                      const std::atomic<bool>* cancel) override;

  // The normalisation that reads the stream before block `i`, or, for the last, the one before the head.
  Norm NormBefore(size_t i);
  void AddAndNormalise(const T* residual, int64_t bias, const Norm& norm);
  void ForwardBlock(const engine::GptBlockTensors& at, BlockActivations& act, const Norm& next);
  void BackwardBlock(const engine::GptBlockTensors& at, BlockActivations& act, float* grads);
  // Of y = x W + b: the gradients of W and b at their offsets, and dx; or, where x = gelu(before_gelu), the
  // gradient of that in its place.
  void Gradients(const T* x, int64_t in, const T* d, int64_t out, int64_t weight, int64_t bias, float* grads,
                 T* dx, T* before_gelu = nullptr);
  void NormBackward(const T* x, const float* mean, const float* rstd, int64_t gamma, int64_t beta,
                    bool accumulate, float* grads);

  // What follows the product with a block's weight of [in, out], forward and backward: each of the four has
  // another shape. What goes to the residual stream gets its bias on the way.
  Epilogue ForwardEpilogue(int64_t in, int64_t out) const {
    return in == C() && out == 4 * C() ? Epilogue::kBiasGelu
           : out == 3 * C()            ? Epilogue::kBias
                                       : Epilogue::kNone;
  }
  Epilogue BackwardEpilogue(int64_t in) const {
    return in == 4 * C() ? Epilogue::kGeluGradient : Epilogue::kNone;
  }
  GemmShape HeadShape(const Chunk& chunk) const;
  GemmShape HeadInputGradientShape(const Chunk& chunk) const;
  GemmShape HeadWeightGradientShape(const Chunk& chunk) const;

  int64_t C() const { return this->config_.width; }
  // Columns of logits that products make: bfloat16 weights have rows of zeros behind the vocabulary.
  int64_t HeadColumns() const {
    return Base::kType == DType::kBf16 ? this->LogitsStride() : this->config_.vocabulary;
  }

  AttentionProblem problem_;
  engine::GptTensors at_;  // its layout has moved to the base
  std::vector<BlockActivations> act_;
  Buffer<T> out_, ln_f_;  // after the last block
  Buffer<float> mean_f_, rstd_f_;
  // Gradients that live only while backward passes: of the residual stream, and of a layer's wide and narrow
  // values. Forward keeps what a product leaves for the residual stream in the narrow one.
  Buffer<T> d_residual_, d_wide_, narrow_;
  Buffer<float> scratch_;
  Buffer<int32_t> sorted_;
};

extern template class Gpt<float>;
extern template class Gpt<Bf16>;

}  // namespace ringmaster::cuda
