// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "worker/compute/engine/kernels/matmul.h"

namespace ringmaster::engine::kernels {

int64_t AttentionScratch(int64_t context) {
  const int64_t rows = std::min(kQueryBlock, context);
  return kMatmulScratch + 2 * rows * context + rows;
}

void AttentionForward(const Kernels& kernels, const AttentionHead& head, float* out, float* lse,
                      float* scratch) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(head.size));
  for (int64_t first = 0; first < head.context; first += kQueryBlock) {
    const int64_t rows = std::min(kQueryBlock, head.context - first);
    const int64_t keys = first + rows;
    float* scores = scratch + kMatmulScratch;
    kernels.MatmulFp32({.m = rows,
                        .n = keys,
                        .k = head.size,
                        .a = {head.q + first * head.ld_qkv, head.ld_qkv},
                        .b = {head.k, head.ld_qkv, true},
                        .c = scores,
                        .ldc = keys},
                       scratch);
    kernels.CausalSoftmax(rows, keys, first, scale, scores, lse + first);
    kernels.MatmulFp32({.m = rows,
                        .n = head.size,
                        .k = keys,
                        .a = {scores, keys},
                        .b = {head.v, head.ld_qkv},
                        .c = out + first * head.ld_out,
                        .ldc = head.ld_out},
                       scratch);
  }
}

void AttentionBackward(const Kernels& kernels, const AttentionHead& head, const AttentionGradients& g,
                       float* scratch) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(head.size));
  const int64_t blocks = (head.context + kQueryBlock - 1) / kQueryBlock;
  // Starts with the last block: it sees every key, so it overwrites d_k and d_v, and the others add to them.
  for (int64_t block = blocks - 1; block >= 0; --block) {
    const int64_t first = block * kQueryBlock;
    const int64_t rows = std::min(kQueryBlock, head.context - first);
    const int64_t keys = first + rows;
    const bool accumulate = block != blocks - 1;
    float* scores = scratch + kMatmulScratch;
    float* d_scores = scores + rows * keys;
    float* delta = d_scores + rows * keys;
    const float* q = head.q + first * head.ld_qkv;
    const float* d_out = g.d_out + first * head.ld_out;
    kernels.MatmulFp32({.m = rows,
                        .n = keys,
                        .k = head.size,
                        .a = {q, head.ld_qkv},
                        .b = {head.k, head.ld_qkv, true},
                        .c = scores,
                        .ldc = keys},
                       scratch);
    kernels.MatmulFp32({.m = rows,
                        .n = keys,
                        .k = head.size,
                        .a = {d_out, head.ld_out},
                        .b = {head.v, head.ld_qkv, true},
                        .c = d_scores,
                        .ldc = keys},
                       scratch);
    kernels.RowDots(rows, head.size, d_out, head.ld_out, g.out + first * head.ld_out, head.ld_out, delta);
    kernels.CausalSoftmaxBackward(rows, keys, first, scale, g.lse + first, delta, scores, d_scores);
    kernels.MatmulFp32({.m = keys,
                        .n = head.size,
                        .k = rows,
                        .a = {scores, keys, true},
                        .b = {d_out, head.ld_out},
                        .c = g.d_v,
                        .ldc = head.ld_qkv,
                        .accumulate = accumulate},
                       scratch);
    kernels.MatmulFp32({.m = keys,
                        .n = head.size,
                        .k = rows,
                        .a = {d_scores, keys, true},
                        .b = {q, head.ld_qkv},
                        .c = g.d_k,
                        .ldc = head.ld_qkv,
                        .accumulate = accumulate},
                       scratch);
    kernels.MatmulFp32({.m = rows,
                        .n = head.size,
                        .k = keys,
                        .a = {d_scores, keys},
                        .b = {head.k, head.ld_qkv},
                        .c = g.d_q + first * head.ld_qkv,
                        .ldc = head.ld_qkv},
                       scratch);
  }
}

}  // namespace ringmaster::engine::kernels
