// SPDX-License-Identifier: Apache-2.0

// GPT-2: token and learned position embeddings, pre-LN blocks of causal self-attention and a GELU MLP, a
// final norm, and a head tied to the token embedding. Source: Radford et al. 2019, "Language Models are
// Unsupervised Multitask Learners". Tensors have the names and shapes of Hugging Face's GPT-2 (y = x W with
// W of shape (in, out)), so that export only reorders them.
//
// Shapes: rows = B * T tokens, C the width, H the heads, V the vocabulary.
#pragma once

#include <vector>

#include "worker/compute/engine/kernels/attention.h"
#include "worker/compute/engine/models/model_base.h"

namespace ringmaster::engine {

class Gpt final : public ModelBase {
 public:
  Gpt(const ModelConfig& config, const kernels::Kernels& kernels);
  int64_t ActivationBytes() const override;

 private:
  Gpt(const ModelConfig& config, GptTensors tensors, const kernels::Kernels& kernels);

  // Activations of a block that forward keeps for backward.
  struct BlockActivations {
    Buffer<float> in;                 // (rows, C): the residual stream before the block
    Buffer<float> ln1, mean1, rstd1;  // (rows, C), (rows), (rows)
    Buffer<float> qkv, lse, att;      // (rows, 3C), (B, H, T), (rows, C)
    Buffer<float> mid;                // (rows, C): the residual stream after attention
    Buffer<float> ln2, mean2, rstd2;  // (rows, C), (rows), (rows)
    Buffer<float> fc, gelu;           // (rows, 4C)
  };

  Status Forward(const float* params, const Batch& batch, const std::atomic<bool>* cancel) override;
  Status Backward(const float* params, const Batch& batch, float* grads, BucketNotifier& notifier,
                  const std::atomic<bool>* cancel) override;

  void ForwardBlock(const float* params, const GptBlockTensors& at, BlockActivations& act, int64_t samples,
                    float* out);
  void BackwardBlock(const float* params, const GptBlockTensors& at, const BlockActivations& act,
                     int64_t samples, float* grads);
  void Norm(const float* x, const float* gamma, const float* beta, int64_t rows, float* out, float* mean,
            float* rstd);
  void NormBackward(const float* dy, const float* x, const float* gamma, const float* mean, const float* rstd,
                    int64_t rows, float* d_gamma, float* d_beta, float* dx);
  void BiasBackward(const float* d, int64_t rows, int64_t columns, float* d_bias);
  void Attention(BlockActivations& act, int64_t samples);
  void AttentionBackward(const BlockActivations& act, const float* d_att, int64_t samples, float* d_qkv);
  kernels::AttentionHead HeadOf(const BlockActivations& act, int64_t unit) const;

  std::vector<GptBlockTensors> blocks_;  // by depth: blocks_[0] reads the embeddings
  int64_t ln_f_g_;
  int64_t ln_f_b_;
  int64_t ln_f_end_;
  int64_t wpe_;
  int64_t wte_;

  std::vector<BlockActivations> act_;
  Buffer<float> out_, ln_f_, mean_f_, rstd_f_;  // of the final norm
  // Gradients that backward reuses in every layer: of the residual stream, and of a layer's wide (up to 4C)
  // and narrow (C) values.
  Buffer<float> d_residual_, d_wide_, d_narrow_;
  std::vector<Buffer<float>> attention_scratch_;  // one per thread
};

}  // namespace ringmaster::engine
