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
  Norm NormInside(size_t i);  // the second normalisation of block `i`
  // Returns the bias that was added to the input of NormBefore(i), or kNoBias.
  int64_t BiasBefore(size_t i) const;
  void AddAndNormalise(const T* residual, int64_t bias, const Norm& norm);
  void ForwardBlock(size_t i);
  void BackwardBlock(size_t i, float* grads);
  // For y = x W: writes the gradient of W at its offset, and dx. When x = gelu(before_gelu), writes the
  // gradient of before_gelu instead of dx.
  void Gradients(const T* x, int64_t in, const T* d, int64_t out, int64_t weight, float* grads, T* dx,
                 T* before_gelu = nullptr);
  // Writes the gradient of a bias that was added to y, given the gradient of y.
  void BiasGradient(const T* d, int64_t out, int64_t bias, float* grads);
  // Adds the gradient of the residual stream `x` to d_residual_, or writes it when `norm` is the final one,
  // and writes the gradients of `norm` and of the bias that was added to x; kNoBias: none was.
  static constexpr int64_t kNoBias = -1;
  void NormBackward(const Norm& norm, int64_t bias, float* grads);

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
  GemmShape HeadWeightGradientShape(const Chunk& chunk, const Chunk& tokens) const;
  // The head's weight gradient is computed for these ranges of tokens: a multiple of kFastTokens, and the
  // rest. cuBLASLt's kernels for Hopper accept no odd number of rows; its older ones took 1.7 times as long
  // for the 50257 tokens of GPT-2 on an H200.
  std::vector<Chunk> TokenRanges() const;

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
