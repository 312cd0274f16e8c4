// SPDX-License-Identifier: Apache-2.0

// GPT-2 on a GPU (worker/compute/engine/models/gpt.h). The epilogue of a product is fused with the next pass
// over its result: bias and GELU; bias, residual and normalisation.
//
// Shapes: rows = B * T tokens, C the width, H the heads.
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

  // Activations of a block that forward keeps for backward.
  struct BlockActivations {
    Buffer<T> in;                // (rows, C): the residual stream before the block
    Buffer<T> ln1;               // (rows, C)
    Buffer<float> mean1, rstd1;  // (rows)
    Buffer<T> qkv, att;          // (rows, 3C), (rows, C)
    Buffer<float> lse;           // (B, H, T)
    Buffer<T> mid;               // (rows, C): the residual stream after attention
    Buffer<T> ln2;               // (rows, C)
    Buffer<float> mean2, rstd2;  // (rows)
    Buffer<T> fc, gelu;          // (rows, 4C)
  };
  // A normalisation: its parameters, its input (the residual stream), its output and its statistics.
  struct Norm {
    int64_t gamma, beta;
    Buffer<T>*in, *out;
    Buffer<float>*mean, *rstd;
  };

  Gpt(const engine::ModelConfig& config, engine::GptTensors tensors, Stream stream,
      const Algorithms& algorithms, const ModelOptions& options);
  void PlanGemms();

  Status PlanMore() override;
  Status Body(const std::atomic<bool>* cancel) override;
  void Head(const Chunk& chunk) override;
  void HeadBackward(const Chunk& chunk, float* grads) override;
  Status BodyBackward(float* grads, engine::BucketNotifier& notifier,
                      const std::atomic<bool>* cancel) override;

  // Returns the first normalisation of block `i`, or the final one when `i` is the number of blocks.
  Norm NormBefore(size_t i);
  void AddAndNormalise(const T* residual, int64_t bias, const Norm& norm);
  void ForwardBlock(const engine::GptBlockTensors& at, BlockActivations& act, const Norm& next);
  void BackwardBlock(const engine::GptBlockTensors& at, BlockActivations& act, float* grads);
  // For y = x W + b: writes the gradients of W and b at their offsets, and dx. When x = gelu(before_gelu),
  // writes the gradient of before_gelu instead of dx.
  void Gradients(const T* x, int64_t in, const T* d, int64_t out, int64_t weight, int64_t bias, float* grads,
                 T* dx, T* before_gelu = nullptr);
  void NormBackward(const T* x, const float* mean, const float* rstd, int64_t gamma, int64_t beta,
                    bool accumulate, float* grads);

  // The epilogues of the products with a block's weight, shape (in, out), which identifies the weight.
  // Results that are added to the residual stream get their bias in that pass.
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
  // Columns of the computed logits: bfloat16 weights have rows of zeros after the vocabulary.
  int64_t HeadColumns() const {
    return Base::kType == DType::kBf16 ? this->LogitsStride() : this->config_.vocabulary;
  }

  AttentionProblem problem_;
  engine::GptTensors at_;  // without its layout, which the base class owns
  std::vector<BlockActivations> act_;
  Buffer<T> out_, ln_f_;  // (rows, C): final norm
  Buffer<float> mean_f_, rstd_f_;
  // Gradients that backward reuses in every layer: of the residual stream, and of a layer's wide (up to 4C)
  // and narrow (C) values. Forward uses narrow_ for results that are added to the residual stream.
  Buffer<T> d_residual_, d_wide_, narrow_;
  Buffer<float> scratch_;
  Buffer<int32_t> sorted_;
};

extern template class Gpt<float>;
extern template class Gpt<Bf16>;

}  // namespace ringmaster::cuda
