// SPDX-License-Identifier: Apache-2.0

// Elementwise kernels.
#include <limits>

#include "tests/cuda/kernels/kernel_test.h"
#include "tests/unit/numerics/values.h"
#include "worker/compute/cuda/kernels/convert.h"
#include "worker/compute/cuda/kernels/gelu.h"
#include "worker/compute/cuda/kernels/relu.h"
#include "worker/compute/engine/kernels/convert.h"
#include "worker/compute/engine/kernels/gelu.h"
#include "worker/compute/engine/kernels/relu.h"

namespace ringmaster::cuda::kernels {
namespace {

namespace reference = engine::kernels::reference;

const std::vector<int64_t> kSizes = {0, 1, 7, 8, 255, 257, 2047, 2048, 2051, 4099};

template <class T>
class Pointwise : public testing::Test {};
TYPED_TEST_SUITE(Pointwise, ActivationTypes);

TYPED_TEST(Pointwise, GeluBackwardEqualsTheReference) {
  using T = TypeParam;
  for (const int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const std::vector<float> x = RandomIn<T>(n + 1, n, 8);
    const std::vector<float> d = RandomIn<T>(n + 2, n);
    const auto [gradient] = InAllOrders([&] {
      const Guarded<T> in(As<T>(x));
      Guarded<T> slope(As<T>(d));
      GeluBackward(kStream, n, in.get(), slope.get());
      return std::tuple(slope.values());
    });
    std::vector<float> want = d;
    reference::GeluBackward(n, x.data(), want.data());
    ExpectNear(gradient, want, 2e-6f, Rounding<T>());
  }
}

TYPED_TEST(Pointwise, BiasGeluStoresTheInputOfBackward) {
  using T = TypeParam;
  for (const int64_t columns : {1, 24, 37, 256, 264, 300}) {
    for (const int64_t rows : {0, 1, 9, 70}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns);
      const std::vector<float> x = RandomIn<T>(rows, rows * columns, 3);
      const std::vector<float> bias = RandomIn<T>(columns, columns);
      const auto [sum, got] = InAllOrders([&] {
        const Guarded<T> b(As<T>(bias));
        Guarded<T> in(As<T>(x));
        Guarded<T> y(x.size());
        BiasGeluForward(kStream, rows, columns, b.get(), in.get(), y.get());
        return std::tuple(in.values(), y.values());
      });
      std::vector<float> want(x);
      for (size_t i = 0; i < x.size(); ++i) want[i] += bias[i % static_cast<size_t>(columns)];
      ExpectNear(sum, want, 0, Rounding<T>());
      // Computed from the stored values, rounding included.
      const std::vector<float> kept = Floats(sum);
      reference::GeluForward(rows * columns, kept.data(), want.data());
      ExpectNear(got, want, 1e-6f, Rounding<T>());
    }
  }
}

TYPED_TEST(Pointwise, ReluEqualsTheReferenceExactly) {
  using T = TypeParam;
  for (const int64_t n : kSizes) {
    SCOPED_TRACE(n);
    std::vector<float> x = RandomIn<T>(n + 1, n);
    for (size_t i = 0; i < x.size(); i += 5) x[i] = 0;
    const std::vector<float> d = RandomIn<T>(n + 2, n);
    const auto [got, gradient] = InAllOrders([&] {
      Guarded<T> y(As<T>(x));
      Guarded<T> masked(As<T>(d));
      ReluForward(kStream, n, y.get());
      ReluBackward(kStream, n, static_cast<const T*>(y.get()), masked.get());
      return std::tuple(y.values(), masked.values());
    });
    std::vector<float> want = x;
    reference::ReluForward(n, want.data());
    ExpectNear(got, want, 0, 0);
    std::vector<float> want_gradient = d;
    reference::ReluBackward(n, want.data(), want_gradient.data());
    ExpectNear(gradient, want_gradient, 0, 0);
  }
  Guarded<T> nan(As<T>(std::vector<float>(9, std::numeric_limits<float>::quiet_NaN())));
  ReluForward(kStream, 9, nan.get());
  for (const T value : nan.values()) EXPECT_TRUE(std::isnan(ToFloat(value)));
}

// A NaN stays one; which of them differs.
TEST(Convert, RoundsLikeTheCpu) {
  for (const int64_t n : kSizes) {
    SplitMix64 random(static_cast<uint64_t>(n) + 5);
    const std::vector<float> x = numerics::Awkward(random, static_cast<size_t>(n), true);
    const auto [rounded] = InAllOrders([&] {
      const Guarded<float> in(x);
      Guarded<Bf16> y(x.size());
      ToBf16(kStream, n, in.get(), y.get());
      return std::tuple(y.values());
    });
    std::vector<uint16_t> want(x.size());
    reference::ToBf16(1, n, x.data(), n, want.data(), n);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(ToFloat(rounded[i])) && std::isnan(ToFloat(Bf16{want[i]})));
      } else {
        ASSERT_EQ(rounded[i].bits, want[i]) << x[i];
      }
    }
  }
}

// Addresses that are not aligned for packs give the same bits.
TEST(Convert, AlignmentDoesNotMatter) {
  const std::vector<float> x = RandomFloats(4, 999);
  const Guarded<float> in(x);
  Guarded<Bf16> y(1000);
  for (const int64_t shift : {0, 1, 2, 3}) {
    ToBf16(kStream, 900, in.get() + shift, y.get() + shift);
    const std::vector<Bf16> got = y.values();
    for (auto i = static_cast<size_t>(shift); i < static_cast<size_t>(900 + shift); ++i) {
      ASSERT_EQ(got[i], RoundToBf16(x[i]));
    }
  }
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
