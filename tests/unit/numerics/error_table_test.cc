// SPDX-License-Identifier: Apache-2.0

// Prints and bounds the error of the exact sum: the table of docs/internals/exact-numerics.md.
#include <gtest/gtest.h>

#include "tests/unit/numerics/values.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::numerics {
namespace {

struct Errors {
  double exact = 0;  // relative L2 error of the exact sum
  double plain = 0;  // relative L2 error of adding floats in order
};

// Each element has its own scale, drawn from a log-normal distribution, so that with a large sigma the
// elements of a block differ strongly in size.
// `raised`: bits by which the exponent is above that of the block's own maximum.
Errors Measure(int micro_batches, double sigma, int raised, size_t limbs) {
  SplitMix64 random(static_cast<uint64_t>(micro_batches) * 100 + static_cast<uint64_t>(sigma * 10));
  const size_t blocks = micro_batches > 256 ? 2 : 16;
  const size_t n = blocks * kBlock;
  std::vector<double> scale(n);
  for (double& s : scale) s = std::exp(sigma * Gauss(random));
  std::vector<std::vector<float>> grads(static_cast<size_t>(micro_batches), std::vector<float>(n));
  std::vector<double> truth(n, 0);
  std::vector<float> plain(n, 0);
  for (auto& g : grads) {
    for (size_t i = 0; i < n; ++i) {
      g[i] = static_cast<float>(scale[i] * Gauss(random));
      truth[i] += double{g[i]};
      plain[i] += g[i];
    }
  }
  const int bits = QuantumBits(micro_batches);
  std::vector<int32_t> exponents(blocks, kUnknown);
  std::vector<int32_t> sums(n * limbs);
  std::vector<int32_t> maxima(blocks, kZero);
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t v = 0; v < grads.size(); ++v) Accumulate(grads[v], exponents, bits, v == 0, sums, maxima);
    if (pass == 0) ExponentsForRedo(maxima, exponents);
    for (int32_t& exponent : exponents) exponent += pass == 0 ? raised : 0;
  }
  EXPECT_FALSE(Overflowed(maxima, exponents));
  std::vector<float> out(n);
  Decode(sums, exponents, bits, 1.0, out);
  double norm = 0;
  double off = 0;
  double off_plain = 0;
  for (size_t i = 0; i < n; ++i) {
    norm += truth[i] * truth[i];
    off += (double{out[i]} - truth[i]) * (double{out[i]} - truth[i]);
    off_plain += (double{plain[i]} - truth[i]) * (double{plain[i]} - truth[i]);
  }
  return {std::sqrt(off / norm), std::sqrt(off_plain / norm)};
}

TEST(ErrorTable, StaysWithinTheDocumentedBounds) {
  struct Row {
    int micro_batches;
    int raised;
    size_t limbs;
    double bounds[3];  // sigma 0, 1, 3: about twice what was measured
  };
  // Ten bits up: the step after a gradient that was 256 times as large as usual.
  const Row rows[] = {{16, 0, 1, {6e-8, 4e-7, 2e-6}},     {64, 0, 1, {3e-7, 2e-6, 6e-6}},
                      {64, 2, 1, {1.2e-6, 7e-6, 2.5e-5}}, {256, 2, 1, {5e-6, 3e-5, 1e-4}},
                      {1024, 2, 1, {2e-5, 1.2e-4, 4e-4}}, {1024, 10, 1, {1e-2, 6e-2, 2e-1}},
                      {1024, 2, 2, {6e-8, 6e-8, 6e-8}},   {1024, 10, 2, {6e-8, 6e-8, 6e-8}}};
  std::printf("%-6s %-8s %-6s %-12s %-12s %-12s %-12s\n", "V", "raised", "limbs", "equal", "sigma 1",
              "sigma 3", "f32 sum");
  for (const Row& row : rows) {
    const double sigmas[] = {0, 1, 3};
    double exact[3];
    double plain = 0;
    for (int k = 0; k < 3; ++k) {
      const Errors errors = Measure(row.micro_batches, sigmas[k], row.raised, row.limbs);
      exact[k] = errors.exact;
      if (k == 0) plain = errors.plain;
      EXPECT_LT(errors.exact, row.bounds[k]) << "V " << row.micro_batches << " sigma " << sigmas[k];
      EXPECT_GT(errors.exact, row.bounds[k] / 200);  // a sum without any error would mean a broken measure
    }
    std::printf("%-6d %-8d %-6zu %-12.2g %-12.2g %-12.2g %-12.2g\n", row.micro_batches, row.raised, row.limbs,
                exact[0], exact[1], exact[2], plain);
  }
}

}  // namespace
}  // namespace ringmaster::numerics
