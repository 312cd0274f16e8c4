// SPDX-License-Identifier: Apache-2.0

// Causal attention of one head of one sample. Queries go in blocks of kQueryBlock rows; a block's scores lie
// in cache from product to soft-max to product, and keys that the block cannot see are not multiplied. Only
// the log-sum-exp of each row is kept for backward, which finds the probabilities again.
#pragma once

#include <cstdint>

#include "worker/compute/engine/kernels/kernels.h"

namespace ringmaster::engine::kernels {

inline constexpr int64_t kQueryBlock = 64;

// Rows are positions. q, k, v (and their gradients) lie inside rows of ld_qkv floats, out inside ld_out.
struct AttentionHead {
  int64_t context = 0;
  int64_t size = 0;  // of a head
  int64_t ld_qkv = 0;
  int64_t ld_out = 0;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
};

// Floats of scratch for one call of either function.
int64_t AttentionScratch(int64_t context);

void AttentionForward(const Kernels& kernels, const AttentionHead& head, float* out, float* lse,
                      float* scratch);

struct AttentionGradients {
  const float* out = nullptr;
  const float* d_out = nullptr;
  const float* lse = nullptr;
  float* d_q = nullptr;  // overwritten, as d_k and d_v
  float* d_k = nullptr;
  float* d_v = nullptr;
};
void AttentionBackward(const Kernels& kernels, const AttentionHead& head, const AttentionGradients& g,
                       float* scratch);

void AttentionForwardReference(const AttentionHead& head, float* out, float* lse);
void AttentionBackwardReference(const AttentionHead& head, const AttentionGradients& g);

}  // namespace ringmaster::engine::kernels
