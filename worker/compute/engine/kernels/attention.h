// SPDX-License-Identifier: Apache-2.0

// Causal self-attention of one head of one sample: out = softmax(q k^T / sqrt(D) + causal mask) v. Source:
// Vaswani et al. 2017, "Attention Is All You Need"; backward recomputes the probabilities from the
// log-sum-exp as in FlashAttention (Dao et al. 2022).
//
// Queries are processed in blocks of kQueryBlock rows, so that the scores of a block stay in cache, and keys
// that the block cannot see are skipped. Forward keeps only the log-sum-exp of each row for backward.
//
// Shapes: q, k, v, out and their gradients (T, D), with T the context and D the head size; lse (T).
#pragma once

#include <cstdint>

#include "worker/compute/engine/kernels/kernels.h"

namespace ringmaster::engine::kernels {

inline constexpr int64_t kQueryBlock = 64;

// One head as rows inside packed activations: q, k, v and their gradients have a row stride of ld_qkv floats,
// out and d_out one of ld_out floats.
struct AttentionHead {
  int64_t context = 0;  // T
  int64_t size = 0;     // D
  int64_t ld_qkv = 0;
  int64_t ld_out = 0;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
};

// Returns the floats of scratch that one call of AttentionForward or AttentionBackward needs.
int64_t AttentionScratch(int64_t context);

// Writes out (T, D) and lse (T).
void AttentionForward(const Kernels& kernels, const AttentionHead& head, float* out, float* lse,
                      float* scratch);

// Inputs and outputs of backward; d_q, d_k and d_v are overwritten.
struct AttentionGradients {
  const float* out = nullptr;
  const float* d_out = nullptr;
  const float* lse = nullptr;
  float* d_q = nullptr;
  float* d_k = nullptr;
  float* d_v = nullptr;
};
void AttentionBackward(const Kernels& kernels, const AttentionHead& head, const AttentionGradients& g,
                       float* scratch);

void AttentionForwardReference(const AttentionHead& head, float* out, float* lse);
void AttentionBackwardReference(const AttentionHead& head, const AttentionGradients& g);

}  // namespace ringmaster::engine::kernels
