// SPDX-License-Identifier: Apache-2.0

// The matrix products of one GPT step, and how fast oneDNN alone does them: operands ready in the product's
// own type, best of two ways in float. The ceiling that the engine is held to.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/compute/engine/model.h"

namespace ringmaster::bench {

struct GemmShape {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  int64_t count;  // per step
  double Flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// Of one forward and backward of `samples` samples. Attention's own products are not among them.
std::vector<GemmShape> ProductsOf(const engine::ModelConfig& config, int samples);

// Where oneDNN finds what it multiplies: the same operands in every call, which then lie in cache, or those
// of the layers of a step in turns, which come from memory as they do in a step.
enum class Operands { kTheSame, kOfAStep };

// Seconds of one product by oneDNN with that many threads.
double RawSeconds(const GemmShape& shape, engine::Precision precision, int threads, Operands operands);

}  // namespace ringmaster::bench
