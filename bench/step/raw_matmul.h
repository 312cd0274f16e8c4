// SPDX-License-Identifier: Apache-2.0

// Lists the matrix products of one GPT step, and measures how fast oneDNN alone computes them: operands
// already have the type of the product; in float, the faster of two methods counts. The ceiling for the
// engine.
#pragma once

#include <cstdint>
#include <optional>
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

// Returns the products of one forward and backward pass of `samples` samples, without those inside attention.
std::vector<GemmShape> ProductsOf(const engine::ModelConfig& config, int samples);

// kTheSame: every call has the same operands, which stay in cache. kOfAStep: calls cycle through the operands
// of a step's layers, which come from memory as in a step.
enum class Operands { kTheSame, kOfAStep };

// Returns the seconds of one product by oneDNN on `threads` threads; nullopt if oneDNN has none for this CPU,
// as for bf16 without AVX-512.
std::optional<double> RawSeconds(const GemmShape& shape, engine::Precision precision, int threads,
                                 Operands operands);

}  // namespace ringmaster::bench
