// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/layernorm.h"

#include "tests/cuda/kernels/kernel_test.h"
#include "worker/compute/engine/kernels/layernorm.h"

namespace ringmaster::cuda::kernels {
namespace {

namespace reference = engine::kernels::reference;

template <class T>
class LayerNorm : public testing::Test {};
TYPED_TEST_SUITE(LayerNorm, ActivationTypes);

const std::vector<int64_t> kWidths = {1, 2, 7, 31, 32, 33, 64, 100, 255, 256, 264, 768, 1024, 1025};

struct Normed {
  std::vector<float> out, mean, rstd;
};

Normed Reference(int64_t rows, int64_t width, const std::vector<float>& x, const std::vector<float>& gamma,
                 const std::vector<float>& beta) {
  Normed n{std::vector<float>(x.size()), std::vector<float>(static_cast<size_t>(rows)),
           std::vector<float>(static_cast<size_t>(rows))};
  reference::LayerNormForward(rows, width, x.data(), gamma.data(), beta.data(), n.out.data(), n.mean.data(),
                              n.rstd.data());
  return n;
}

TYPED_TEST(LayerNorm, ForwardOfEveryWidth) {
  using T = TypeParam;
  for (const int64_t width : kWidths) {
    for (const int64_t rows : {0, 1, 9}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << width);
      const std::vector<float> x = RandomIn<T>(width, rows * width, 3);
      const std::vector<float> gamma = RandomFloats(2, width);
      const std::vector<float> beta = RandomFloats(3, width);
      const auto [out, mean, rstd] = InAllOrders([&] {
        const Guarded<T> in(As<T>(x));
        const Guarded<float> g(gamma), b(beta);
        Guarded<T> to(x.size());
        Guarded<float> m(static_cast<size_t>(rows)), s(static_cast<size_t>(rows));
        LayerNormForward(kStream, rows, width, in.get(), g.get(), b.get(), to.get(), m.get(), s.get());
        return std::tuple(to.values(), m.values(), s.values());
      });
      const Normed want = Reference(rows, width, x, gamma, beta);
      ExpectNear(mean, want.mean, 1e-6f, 1e-5f);
      ExpectNear(rstd, want.rstd, 0, 1e-5f);
      ExpectNear(out, want.out, 1e-5f, Rounding<T>());
    }
  }
}

TYPED_TEST(LayerNorm, FusedResidual) {
  using T = TypeParam;
  for (const int64_t width : {1, 24, 37, 256, 768}) {
    for (const bool with_bias : {false, true}) {
      for (const bool in_place : {false, true}) {
        const int64_t rows = 11;
        SCOPED_TRACE(testing::Message()
                     << width << (with_bias ? " bias" : "") << (in_place ? " in place" : ""));
        const std::vector<float> residual = RandomIn<T>(width, rows * width, 2);
        const std::vector<float> add = RandomIn<T>(width + 1, rows * width);
        const std::vector<float> bias = RandomFloats(4, width);
        const std::vector<float> gamma = RandomFloats(2, width);
        const std::vector<float> beta = RandomFloats(3, width);
        const auto [sum, out, mean, rstd] = InAllOrders([&] {
          Guarded<T> r(As<T>(residual));
          const Guarded<T> a(As<T>(add));
          const Guarded<float> c(bias), g(gamma), b(beta);
          Guarded<T> kept(add.size()), to(add.size());
          Guarded<float> m(static_cast<size_t>(rows)), s(static_cast<size_t>(rows));
          T* const place = in_place ? r.get() : kept.get();
          ResidualLayerNormForward(kStream, rows, width, static_cast<const T*>(r.get()), a.get(),
                                   with_bias ? c.get() : nullptr, g.get(), b.get(), place, to.get(), m.get(),
                                   s.get());
          return std::tuple(in_place ? r.values() : kept.values(), to.values(), m.values(), s.values());
        });
        std::vector<float> want_sum(add.size());
        for (size_t i = 0; i < add.size(); ++i) {
          want_sum[i] = residual[i] + (add[i] + (with_bias ? bias[i % static_cast<size_t>(width)] : 0.0f));
        }
        ExpectNear(sum, want_sum, 0, Rounding<T>());
        const Normed want = Reference(rows, width, Floats(sum), gamma, beta);  // of the stored sum
        ExpectNear(mean, want.mean, 1e-6f, 1e-5f);
        ExpectNear(rstd, want.rstd, 0, 1e-5f);
        ExpectNear(out, want.out, 1e-5f, Rounding<T>());
      }
    }
  }
}

TYPED_TEST(LayerNorm, BackwardOfEveryWidth) {
  using T = TypeParam;
  for (const int64_t width : kWidths) {
    for (const int64_t rows : {0, 1, 9, 131}) {
      if (rows == 131 && width > 300) continue;
      const bool accumulate = rows % 2 == 1;
      SCOPED_TRACE(testing::Message() << rows << " x " << width);
      const std::vector<float> x = RandomIn<T>(width, rows * width, 3);
      const std::vector<float> dy = RandomIn<T>(width + 1, rows * width);
      const std::vector<float> before = RandomIn<T>(width + 2, rows * width);
      const std::vector<float> gamma = RandomFloats(2, width);
      const Normed normed = Reference(rows, width, x, gamma, gamma);
      const bool with_sums = rows != 1;
      const auto [dx, d_gamma, d_beta, dx_sums] = InAllOrders([&] {
        const Guarded<T> in(As<T>(x)), d(As<T>(dy));
        const Guarded<float> g(gamma), m(normed.mean), s(normed.rstd);
        Guarded<T> to(As<T>(before));
        Guarded<float> to_gamma(gamma.size()), to_beta(gamma.size()), to_sums(gamma.size());
        Guarded<float> scratch(static_cast<size_t>(LayerNormBackwardScratch(rows, width)));
        LayerNormBackward(kStream, rows, width, d.get(), in.get(), g.get(), m.get(), s.get(), accumulate,
                          to.get(), to_gamma.get(), to_beta.get(), with_sums ? to_sums.get() : nullptr,
                          scratch.get());
        return std::tuple(to.values(), to_gamma.values(), to_beta.values(),
                          with_sums ? to_sums.values() : std::vector<float>());
      });
      std::vector<float> want = accumulate ? before : std::vector<float>(x.size());
      reference::LayerNormBackward(rows, width, dy.data(), x.data(), gamma.data(), normed.mean.data(),
                                   normed.rstd.data(), want.data());
      // rstd, up to 1 / sqrt(epsilon), multiplies the error of the differences.
      ExpectNear(dx, want, width < 4 ? 1e-3f : 2e-5f, Rounding<T>());
      std::vector<float> want_gamma(gamma.size());
      std::vector<float> want_beta(gamma.size());
      reference::LayerNormBackwardParams(rows, width, 0, width, dy.data(), x.data(), normed.mean.data(),
                                         normed.rstd.data(), want_gamma.data(), want_beta.data());
      ExpectNear(d_gamma, want_gamma, 5e-5f, 1e-5f);
      ExpectNear(d_beta, want_beta, 2e-5f, 1e-5f);
      if (!with_sums) continue;
      std::vector<float> want_sums(gamma.size());
      const std::vector<float> stored = Floats(dx);
      for (size_t i = 0; i < stored.size(); ++i) want_sums[i % gamma.size()] += stored[i];
      ExpectNear(dx_sums, want_sums, width < 4 ? 1e-2f : 1e-4f, 1e-5f);
    }
  }
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
