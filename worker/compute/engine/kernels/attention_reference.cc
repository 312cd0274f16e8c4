// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/compute/engine/kernels/attention.h"

namespace ringmaster::engine::kernels {
namespace {

double Dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Returns the probabilities of query t over keys 0 .. t, and writes their log-sum-exp.
double Probabilities(const AttentionHead& head, int64_t t, std::vector<double>& p) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(head.size));
  p.assign(static_cast<size_t>(t + 1), 0);
  for (int64_t j = 0; j <= t; ++j)
    p[static_cast<size_t>(j)] = scale * Dot(head.q + t * head.ld_qkv, head.k + j * head.ld_qkv, head.size);
  const double top = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - top);
  for (double& value : p) value /= sum;
  return top + std::log(sum);
}

}  // namespace

void AttentionForwardReference(const AttentionHead& head, float* out, float* lse) {
  std::vector<double> p;
  for (int64_t t = 0; t < head.context; ++t) {
    lse[t] = static_cast<float>(Probabilities(head, t, p));
    for (int64_t i = 0; i < head.size; ++i) {
      double sum = 0;
      for (int64_t j = 0; j <= t; ++j) sum += p[static_cast<size_t>(j)] * head.v[j * head.ld_qkv + i];
      out[t * head.ld_out + i] = static_cast<float>(sum);
    }
  }
}

void AttentionBackwardReference(const AttentionHead& head, const AttentionGradients& g) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(head.size));
  const auto cells = static_cast<size_t>(head.context * head.size);
  std::vector<double> p;
  std::vector<double> dq(cells), dk(cells), dv(cells);
  for (int64_t t = 0; t < head.context; ++t) {
    Probabilities(head, t, p);
    const float* d_out = g.d_out + t * head.ld_out;
    const double delta = Dot(d_out, g.out + t * head.ld_out, head.size);
    for (int64_t j = 0; j <= t; ++j) {
      const double probability = p[static_cast<size_t>(j)];
      const double d = probability * (Dot(d_out, head.v + j * head.ld_qkv, head.size) - delta) * scale;
      for (int64_t i = 0; i < head.size; ++i) {
        dv[static_cast<size_t>(j * head.size + i)] += probability * d_out[i];
        dq[static_cast<size_t>(t * head.size + i)] += d * head.k[j * head.ld_qkv + i];
        dk[static_cast<size_t>(j * head.size + i)] += d * head.q[t * head.ld_qkv + i];
      }
    }
  }
  for (int64_t t = 0; t < head.context; ++t)
    for (int64_t i = 0; i < head.size; ++i) {
      const auto at = static_cast<size_t>(t * head.size + i);
      g.d_q[t * head.ld_qkv + i] = static_cast<float>(dq[at]);
      g.d_k[t * head.ld_qkv + i] = static_cast<float>(dk[at]);
      g.d_v[t * head.ld_qkv + i] = static_cast<float>(dv[at]);
    }
}

}  // namespace ringmaster::engine::kernels
