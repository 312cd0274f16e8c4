// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/matmul.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "base/hash.h"
#include "tests/unit/engine/fixtures.h"
#include "worker/compute/engine/exec.h"

namespace ringmaster::engine {
namespace {

using kernels::MatmulArgs;

struct Shape {
  int64_t m, n, k;
};
const Shape kShapes[] = {{1, 1, 1}, {3, 5, 7}, {16, 16, 16}, {129, 257, 65}, {130, 511, 33}, {64, 33, 300}};

std::vector<float> Multiply(const Shape& s, bool ta, bool tb, bool accumulate, size_t misalign, int threads,
                            Precision precision = Precision::kFp32,
                            const kernels::Kernels& kernels = kernels::FastKernels()) {
  const std::vector<float> a = RandomFloats(1, s.m * s.k + 8), b = RandomFloats(2, s.k * s.n + 8);
  std::vector<float> a_moved(a.size() + 16), b_moved(b.size() + 16), c(static_cast<size_t>(s.m * s.n) + 16);
  std::copy(a.begin(), a.end(), a_moved.begin() + static_cast<std::ptrdiff_t>(misalign));
  std::copy(b.begin(), b.end(), b_moved.begin() + static_cast<std::ptrdiff_t>(misalign));
  const std::vector<float> before = RandomFloats(3, s.m * s.n);
  std::copy(before.begin(), before.end(), c.begin() + static_cast<std::ptrdiff_t>(misalign));
  const MatmulArgs product{.m = s.m,
                           .n = s.n,
                           .k = s.k,
                           .a = {a_moved.data() + misalign, ta ? s.m : s.k, ta},
                           .b = {b_moved.data() + misalign, tb ? s.k : s.n, tb},
                           .c = c.data() + misalign,
                           .ldc = s.n,
                           .accumulate = accumulate};
  if (threads == 0) {
    kernels::ReferenceKernels().MatmulFp32(product, nullptr);
  } else {
    Exec exec(threads, precision, kernels);
    exec.Matmul(product);
  }
  return {c.begin() + static_cast<std::ptrdiff_t>(misalign),
          c.begin() + static_cast<std::ptrdiff_t>(misalign) + s.m * s.n};
}

// The product of the definition on every instruction set that this CPU has.
class MatmulFp32 : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    kernels_ = kernels::KernelsFor(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "this CPU has no " << GetParam();
  }
  const kernels::Kernels* kernels_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(By, MatmulFp32, testing::Values("base", "avx2", "avx512"));

TEST_P(MatmulFp32, HasTheBitsOfTheDefinitionForEveryOrientation) {
  for (const Shape& s : kShapes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const bool accumulate : {false, true})
          for (const int threads : {1, 2}) {
            const std::vector<float> want = Multiply(s, ta, tb, accumulate, 0, 0);
            const std::vector<float> got =
                Multiply(s, ta, tb, accumulate, 1, threads, Precision::kFp32, *kernels_);
            ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
                << s.m << "x" << s.n << "x" << s.k << " ta=" << ta << " tb=" << tb << " add=" << accumulate
                << " threads=" << threads;
          }
}

// Row strides larger than the rows, values of very different size, and a division into four parts.
TEST_P(MatmulFp32, BitsDependNeitherOnStridesNorOnTheDivision) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  };
  for (int round = 0; round < 60; ++round) {
    const int64_t m = 1 + draw(100), n = 1 + draw(120), k = draw(700);
    const bool ta = draw(2) == 1, tb = draw(2) == 1, accumulate = draw(2) == 1;
    const int64_t lda = (ta ? m : k) + draw(5) + 1, ldb = (tb ? k : n) + draw(5), ldc = n + draw(5);
    std::vector<float> a = RandomFloats(static_cast<uint64_t>(round), (ta ? k : m) * lda + 8);
    std::vector<float> b = RandomFloats(static_cast<uint64_t>(round) + 1000, (tb ? n : k) * ldb + 8);
    for (float& value : a) value = std::ldexp(value, static_cast<int>(draw(24)) - 12);
    std::vector<float> want = RandomFloats(5, m * ldc);
    std::vector<float> got = want;
    std::vector<float> scratch(kernels::kMatmulScratch);
    MatmulArgs whole{.m = m, .n = n, .k = k, .a = {a.data(), lda, ta}, .b = {b.data(), ldb, tb}};
    whole.c = want.data();
    whole.ldc = ldc;
    whole.accumulate = accumulate;
    kernels::ReferenceKernels().MatmulFp32(whole, nullptr);
    const int64_t row = draw(m + 1), column = draw(n + 1);
    for (const auto& [first, last] : {std::pair{int64_t{0}, row}, std::pair{row, m}})
      for (const auto& [left, right] : {std::pair{int64_t{0}, column}, std::pair{column, n}}) {
        MatmulArgs part = whole;
        part.m = last - first;
        part.n = right - left;
        part.a.data = whole.a.At(first, 0);
        part.b.data = whole.b.At(0, left);
        part.c = got.data() + first * ldc + left;
        kernels_->MatmulFp32(part, scratch.data());
      }
    ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
        << m << "x" << n << "x" << k << " ta=" << ta << " tb=" << tb << " add=" << accumulate;
  }
}

// The constant is the hash on every CPU. It changes only with the definition, and then so do the weights of
// every run: see worker/compute/engine/kernels/matmul.h.
TEST_P(MatmulFp32, HashIsTheConstantOfEveryCpu) {
  std::vector<float> scratch(kernels::kMatmulScratch);
  uint64_t hash = 0;
  for (const Shape& s : {Shape{65, 300, 700}, Shape{250, 1600, 40}, Shape{7, 9, 1000}}) {
    const std::vector<float> a = RandomFloats(1, s.m * s.k), b = RandomFloats(2, s.k * s.n);
    std::vector<float> c(static_cast<size_t>(s.m * s.n));
    kernels_->MatmulFp32(
        {.m = s.m, .n = s.n, .k = s.k, .a = {a.data(), s.k}, .b = {b.data(), s.n}, .c = c.data(), .ldc = s.n},
        scratch.data());
    hash = hash * 31 + Hash64(std::as_bytes(std::span(c)));
  }
  EXPECT_EQ(hash, 0x4ac91fc23acf87fbu) << fmt::format("0x{:016x}", hash);
}

TEST(Matmul, BitsDependNeitherOnThreadsNorOnAlignment) {
  for (const Shape& s : kShapes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        const std::vector<float> want = Multiply(s, ta, tb, true, 0, 1);
        for (const auto& [misalign, threads] : {std::pair{size_t{0}, 2}, std::pair{size_t{0}, 3},
                                                std::pair{size_t{1}, 1}, std::pair{size_t{7}, 2}}) {
          const std::vector<float> got = Multiply(s, ta, tb, true, misalign, threads);
          ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
              << s.m << "x" << s.n << "x" << s.k << " misalign=" << misalign << " threads=" << threads;
        }
      }
}

// By oneDNN or, on a CPU without products of bfloat16, by floats; and by tiles.
class MatmulBf16 : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    kernels_ = kernels::KernelsFor(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "this CPU has no " << GetParam();
  }
  const kernels::Kernels* kernels_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(By, MatmulBf16, testing::Values("base", "avx2", "avx512", "tiles"));

// The product of operands rounded to bf16, in double: the result of the bf16 path, except for the order of
// sums.
std::vector<float> RoundedProduct(const Shape& s, bool ta, bool tb, bool accumulate) {
  const std::vector<float> a = RandomFloats(1, s.m * s.k + 8), b = RandomFloats(2, s.k * s.n + 8);
  std::vector<uint16_t> a16(a.size()), b16(b.size());
  kernels::ReferenceKernels().ToBf16(1, static_cast<int64_t>(a.size()), a.data(), 0, a16.data(), 0);
  kernels::ReferenceKernels().ToBf16(1, static_cast<int64_t>(b.size()), b.data(), 0, b16.data(), 0);
  std::vector<float> c = RandomFloats(3, s.m * s.n);
  kernels::MatmulBf16Reference({.m = s.m,
                                .n = s.n,
                                .k = s.k,
                                .a = {a16.data(), ta ? s.m : s.k, ta},
                                .b = {b16.data(), tb ? s.k : s.n, tb},
                                .c = c.data(),
                                .ldc = s.n,
                                .accumulate = accumulate});
  return c;
}

TEST_P(MatmulBf16, AgreesWithTheReferenceForEveryOrientation) {
  // Also deeper than one slice, with either side the longer one, and so large that a gradient of a weight is
  // written past the caches.
  const Shape shapes[] = {{1, 1, 1},       {3, 5, 7},    {129, 257, 65}, {300, 64, 33},
                          {17, 130, 4100}, {2100, 9, 5}, {515, 261, 40}};
  for (const Shape& s : shapes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const bool accumulate : {false, true}) {
          const std::vector<float> want = RoundedProduct(s, ta, tb, accumulate);
          const std::vector<float> got = Multiply(s, ta, tb, accumulate, 0, 1, Precision::kBf16, *kernels_);
          for (size_t i = 0; i < want.size(); ++i)
            ASSERT_NEAR(got[i], want[i], 4e-6 * std::sqrt(static_cast<double>(s.k)) + 1e-6)
                << s.m << "x" << s.n << "x" << s.k << " ta=" << ta << " tb=" << tb << " element " << i;
          const std::vector<float> threaded =
              Multiply(s, ta, tb, accumulate, 3, 3, Precision::kBf16, *kernels_);
          ASSERT_EQ(std::memcmp(got.data(), threaded.data(), got.size() * sizeof(float)), 0);
        }
}

// Both gradients of y = x W in one call give the bits of one call each, whatever the threads.
TEST(Matmul, GradientsTogetherOrOneByOne) {
  struct Layer {
    int64_t rows, in, out;
  };
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    // Also with a gradient in several slices, whose ends are no strips' ends.
    for (const Layer& s : {Layer{1, 3, 5}, Layer{65, 70, 130}, Layer{2100, 40, 33}, Layer{40, 33, 1040}}) {
      const std::vector<float> x = RandomFloats(1, s.rows * s.in), d = RandomFloats(2, s.rows * s.out),
                               w = RandomFloats(3, s.in * s.out);
      const auto gradients = [&](int threads, bool together, std::vector<float>& dw, std::vector<float>& dx) {
        dw.assign(static_cast<size_t>(s.in * s.out), 0);
        dx.assign(static_cast<size_t>(s.rows * s.in), 0);
        Exec exec(threads, precision, kernels::FastKernels());
        const MatmulArgs of_weight{.m = s.in,
                                   .n = s.out,
                                   .k = s.rows,
                                   .a = {x.data(), s.in, true},
                                   .b = {d.data(), s.out},
                                   .c = dw.data(),
                                   .ldc = s.out};
        const MatmulArgs of_input{.m = s.rows,
                                  .n = s.in,
                                  .k = s.out,
                                  .a = {d.data(), s.out},
                                  .b = {w.data(), s.out, true},
                                  .c = dx.data(),
                                  .ldc = s.in};
        if (together) {
          exec.MatmulGradients(of_weight, of_input);
        } else {
          exec.Matmul(of_weight);
          exec.Matmul(of_input);
        }
      };
      std::vector<float> want_dw, want_dx, dw, dx;
      gradients(1, false, want_dw, want_dx);
      for (const int threads : {1, 3}) {
        gradients(threads, true, dw, dx);
        EXPECT_EQ(dw, want_dw) << s.rows << " rows " << s.in << " in " << s.out << " out";
        EXPECT_EQ(dx, want_dx) << s.rows << " rows " << s.in << " in " << s.out << " out";
      }
    }
  }
}

void ExpectEpilogue(Precision precision, const kernels::Kernels& kernels, int64_t k) {
  const int64_t m = 150, n = 300;
  const std::vector<float> a = RandomFloats(4, m * k), b = RandomFloats(5, k * n), bias = RandomFloats(6, n),
                           residual = RandomFloats(7, m * n);
  std::vector<float> plain(static_cast<size_t>(m * n)), got(static_cast<size_t>(m * n));
  Exec exec(2, precision, kernels);
  MatmulArgs product{
      .m = m, .n = n, .k = k, .a = {a.data(), k}, .b = {b.data(), n}, .c = plain.data(), .ldc = n};
  exec.Matmul(product);
  product.c = got.data();
  exec.Matmul(product, {.bias = bias.data(), .residual = residual.data()});
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], plain[i] + bias[i % static_cast<size_t>(n)] + residual[i]) << i;
}

TEST(Matmul, EpilogueAddsBiasAndResidual) { ExpectEpilogue(Precision::kFp32, kernels::FastKernels(), 9); }

TEST_P(MatmulBf16, EpilogueAddsBiasAndResidual) {
  for (const int64_t k : {9, 2100}) ExpectEpilogue(Precision::kBf16, *kernels_, k);
}

}  // namespace
}  // namespace ringmaster::engine
