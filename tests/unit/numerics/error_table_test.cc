// SPDX-License-Identifier: Apache-2.0

// Prints and bounds the error of the exact sum: the table of docs/internals/exact-numerics.md.
#include <gtest/gtest.h>

#include "tests/unit/numerics/values.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::numerics {
namespace {

constexpr size_t kBlocks = 16;

struct Errors {
  double exact = 0;  // relative L2 error of the exact sum
  double plain = 0;  // relative L2 error of adding floats in order
};

// Each element has its own scale, drawn from a log-normal distribution, so that with a large sigma the
// elements of a block differ strongly in size.
Errors Measure(int micro_batches, double sigma, bool slack) {
  SplitMix64 random(static_cast<uint64_t>(micro_batches) * 100 + static_cast<uint64_t>(sigma * 10));
  const size_t n = kBlocks * kBlock;
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
  std::vector<int32_t> exponents(kBlocks, kUnknown);
  std::vector<int32_t> sums(n);
  std::vector<int32_t> maxima(kBlocks, kZero);
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t v = 0; v < grads.size(); ++v) Accumulate(grads[v], exponents, bits, v == 0, sums, maxima);
    if (pass == 0) ExponentsForRedo(maxima, exponents);
    for (int32_t& exponent : exponents) exponent += pass == 0 && slack ? 2 : 0;
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
    bool slack;
    double bounds[3];  // sigma 0, 1, 3: about twice what was measured
  };
  const Row rows[] = {{16, false, {6e-8, 4e-7, 2e-6}},
                      {64, false, {3e-7, 2e-6, 6e-6}},
                      {64, true, {1.2e-6, 7e-6, 2.5e-5}},
                      {256, true, {5e-6, 3e-5, 1e-4}}};
  std::printf("%-6s %-10s %-12s %-12s %-12s %-12s\n", "V", "exponent", "equal", "sigma 1", "sigma 3",
              "f32 sum");
  for (const Row& row : rows) {
    const double sigmas[] = {0, 1, 3};
    double exact[3];
    double plain = 0;
    for (int k = 0; k < 3; ++k) {
      const Errors errors = Measure(row.micro_batches, sigmas[k], row.slack);
      exact[k] = errors.exact;
      if (k == 0) plain = errors.plain;
      EXPECT_LT(errors.exact, row.bounds[k]) << "V " << row.micro_batches << " sigma " << sigmas[k];
      EXPECT_GT(errors.exact, row.bounds[k] / 200);  // a sum without any error would mean a broken measure
    }
    std::printf("%-6d %-10s %-12.2g %-12.2g %-12.2g %-12.2g\n", row.micro_batches,
                row.slack ? "2 bits up" : "exact", exact[0], exact[1], exact[2], plain);
  }
}

}  // namespace
}  // namespace ringmaster::numerics
