// SPDX-License-Identifier: Apache-2.0

// The kernels of each instruction set give one hash, on every CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "worker/compute/numerics/exact.h"
#include "worker/compute/numerics/kernels.h"

namespace ringmaster::numerics {
namespace {

// The constant changes only with a formula, and then so do the weights of every run: raise
// numerics/revision.h.
TEST(Kernels, HashIsTheConstantOfEveryCpu) {
  SplitMix64 random(1);
  std::vector<float> values(kBlock);
  for (float& value : values) {
    const double size = random.Uniform() * 2 - 1;
    value = static_cast<float>(std::ldexp(size, -static_cast<int>(random.Below(140))));
  }
  for (const Kernels& kernels : AvailableKernels()) {
    uint64_t hash = kernels.max_bits(values.data());
    const auto add = [&hash](const auto& results) {
      hash = hash * 31 + Hash64(std::as_bytes(std::span(results)));
    };
    std::vector<int32_t> sums(kBlock), wide(2 * kBlock);
    kernels.quantise(values.data(), 0x1p20F, sums.data());
    kernels.quantise_add(values.data(), 0x1p22F, sums.data());
    add(sums);
    kernels.quantise_wide(values.data(), 0x1p20F, 0x1p20F, wide.data());
    kernels.quantise_wide_add(values.data(), 0x1p19F, 0x1p20F, wide.data());
    add(wide);
    std::vector<float> out(kBlock);
    for (const double factor : {0x1p-20 / 3, 0x1p-140 / 3}) {
      kernels.decode(sums.data(), factor, out.data());
      add(out);
      kernels.decode_wide(wide.data(), factor, 0x1p20, out.data());
      add(out);
    }
    add(std::vector<double>{kernels.sum_squares(values.data(), kBlock - 5)});
    kernels.add(values.data(), kBlock - 3, out.data());
    add(out);
    kernels.multiply(values.data(), kBlock - 3, 1.0F / 3, out.data());
    add(out);
    EXPECT_EQ(hash, 0xef9f153ac5ee579au) << kernels.name << fmt::format(" 0x{:016x}", hash);
  }
}

}  // namespace
}  // namespace ringmaster::numerics
