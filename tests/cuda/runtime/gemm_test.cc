// SPDX-License-Identifier: Apache-2.0

// GEMM against sums in double: the emulation, which the tests of models use, and on a GPU cuBLASLt.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <vector>

#include "base/rng.h"
#include "tests/cuda/runtime/with_device.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/kernels/bf16.h"

namespace ringmaster::cuda {
namespace {

class GemmOfDevice : public WithDevice<testing::Test> {};

template <class T>
std::vector<T> RandomValues(uint64_t seed, int64_t size) {
  std::vector<T> values(static_cast<size_t>(size));
  SplitMix64 random(seed);
  for (T& value : values) value = FromFloat<T>(static_cast<float>(2 * random.Uniform() - 1));
  return values;
}

double Gelu(double x) { return x / (1 + std::exp(-1.5957691216 * (x + 0.044715 * x * x * x))); }

template <class In, class Out>
void Check(const GemmShape& s, double tolerance) {
  const OwnedStream stream = OwnedStream::Create().value();
  const auto gemm = Gemm::Create({}).value();
  const int64_t lda = s.lda != 0 ? s.lda : (s.a_transposed ? s.m : s.k);
  const int64_t ldb = s.ldb != 0 ? s.ldb : (s.b_transposed ? s.k : s.n);
  const int64_t ldc = s.ldc != 0 ? s.ldc : s.n;
  const auto a = RandomValues<In>(1, (s.a_transposed ? s.k : s.m) * lda);
  const auto b = RandomValues<In>(2, (s.b_transposed ? s.n : s.k) * ldb);
  const auto c = RandomValues<Out>(3, s.m * ldc);
  const auto bias = RandomValues<Out>(4, s.n);
  const auto a_there = Uploaded(stream.get(), a);
  const auto b_there = Uploaded(stream.get(), b);
  const auto c_there = Uploaded(stream.get(), c);
  const auto bias_there = Uploaded(stream.get(), bias);
  const Status prepared = gemm->Prepare(s);
  ASSERT_TRUE(prepared.ok()) << prepared.error().message;
  const auto before_gelu = RandomValues<Out>(5, s.m * s.n);
  const auto aux_there = Uploaded(stream.get(), before_gelu);
  gemm->Run(stream.get(), s,
            {a_there.get(), b_there.get(), c_there.get(), bias_there.get(), aux_there.get()});
  const std::vector<Out> got = Downloaded(stream.get(), c_there);
  const std::vector<Out> aux = Downloaded(stream.get(), aux_there);
  const auto at = [](const auto& values, int64_t i) {
    return double{ToFloat(values[static_cast<size_t>(i)])};
  };
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < ldc; ++j) {
      if (j >= s.n) {
        ASSERT_EQ(at(got, i * ldc + j), at(c, i * ldc + j)) << "between the rows";
        continue;
      }
      double want = s.accumulate ? at(c, i * ldc + j) : 0;
      if (s.epilogue == Epilogue::kBias || s.epilogue == Epilogue::kBiasGelu) want += at(bias, j);
      for (int64_t k = 0; k < s.k; ++k)
        want += at(a, s.a_transposed ? k * lda + i : i * lda + k) *
                at(b, s.b_transposed ? j * ldb + k : k * ldb + j);
      if (s.epilogue == Epilogue::kBiasGelu) {
        ASSERT_NEAR(at(aux, i * s.n + j), want, tolerance * (1 + std::abs(want))) << "aux " << i << " " << j;
        want = Gelu(want);
      }
      if (s.epilogue == Epilogue::kGeluGradient) {
        const double x = at(before_gelu, i * s.n + j);
        want *= (Gelu(x + 1e-6) - Gelu(x - 1e-6)) / 2e-6;
      }
      ASSERT_NEAR(at(got, i * ldc + j), want, tolerance * (1 + std::abs(want))) << i << " " << j;
    }
}

TEST_F(GemmOfDevice, AgreesWithSumsInDouble) {
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true})
      for (const bool odd : {false, true}) {
        GemmShape shape{.m = odd ? 7 : 16,
                        .n = odd ? 13 : 24,
                        .k = odd ? 29 : 32,
                        .a_transposed = a_transposed,
                        .b_transposed = b_transposed};
        Check<float, float>(shape, 1e-5);
        shape.epilogue = Epilogue::kBias;
        shape.ldc = 32;
        shape.lda = 40;
        Check<float, float>(shape, 1e-5);
        shape.epilogue = Epilogue::kNone;
        shape.accumulate = true;
        shape.in = DType::kBf16;
        Check<Bf16, float>(shape, 1e-5);
        shape.accumulate = false;
        shape.epilogue = Epilogue::kBias;
        shape.out = DType::kBf16;
        Check<Bf16, Bf16>(shape, 5e-3);
      }
}

// The library's first choice has the epilogue in the product. Its GELU differs from that of the CPU by more
// than rounding: tests of whole models allow for it.
TEST_F(GemmOfDevice, ErrorOfTheFusedGelu) {
  constexpr int64_t kRows = 64, kInner = 32, kColumns = 128;
  const GemmShape shape{.m = kRows, .n = kColumns, .k = kInner, .epilogue = Epilogue::kBiasGelu};
  const OwnedStream stream = OwnedStream::Create().value();
  const auto gemm = Gemm::Create({.cache_folder = "", .measure = false}).value();
  ASSERT_TRUE(gemm->Prepare(shape).ok());
  const auto a = RandomValues<float>(1, kRows * kInner);
  const auto b = RandomValues<float>(2, kInner * kColumns);
  const auto bias = RandomValues<float>(3, kColumns);
  const auto a_there = Uploaded(stream.get(), a);
  const auto b_there = Uploaded(stream.get(), b);
  const auto bias_there = Uploaded(stream.get(), bias);
  const auto out = Buffer<float>::Create(kRows * kColumns).value();
  const auto aux = Buffer<float>::Create(kRows * kColumns).value();
  gemm->Run(stream.get(), shape, {a_there.get(), b_there.get(), out.get(), bias_there.get(), aux.get()});
  const std::vector<float> got = Downloaded(stream.get(), out), before = Downloaded(stream.get(), aux);
  double off = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double want = Gelu(before[i]);
    off += (got[i] - want) * (got[i] - want);
    size += want * want;
  }
  const double distance = std::sqrt(off / size);
  std::cout << "    relative distance " << distance << "\n";
  EXPECT_LT(distance, 1e-5);
}

TEST_F(GemmOfDevice, EpiloguesAgree) {
  for (const Epilogue epilogue : {Epilogue::kBiasGelu, Epilogue::kGeluGradient})
    for (const bool odd : {false, true}) {
      GemmShape shape{.m = odd ? 7 : 16, .n = odd ? 13 : 24, .k = odd ? 29 : 32, .epilogue = epilogue};
      shape.b_transposed = epilogue == Epilogue::kGeluGradient;
      Check<float, float>(shape, 1e-5);
      shape.in = shape.out = DType::kBf16;
      Check<Bf16, Bf16>(shape, 2e-2);
    }
}

TEST_F(GemmOfDevice, AnotherProcessAdoptsTheChoices) {
  const GemmShape shape{.m = 64, .n = 32, .k = 16};
  const auto one = Gemm::Create({}).value();
  const auto other = Gemm::Create({}).value();
  ASSERT_TRUE(one->Prepare(shape).ok());
  EXPECT_NE(one->Fingerprint(), other->Fingerprint());
  ASSERT_TRUE(other->Adopt(one->Choices()).ok());
  ASSERT_TRUE(other->Prepare(shape).ok());
  EXPECT_EQ(one->Fingerprint(), other->Fingerprint());
  EXPECT_FALSE(other->Adopt("something else").ok());
}

}  // namespace
}  // namespace ringmaster::cuda
