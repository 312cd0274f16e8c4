// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/cross_entropy.h"

#include "tests/cuda/kernels/kernel_test.h"
#include "worker/compute/engine/kernels/cross_entropy.h"

namespace ringmaster::cuda::kernels {
namespace {

namespace reference = engine::kernels::reference;

template <class T>
class CrossEntropyOf : public testing::Test {};
TYPED_TEST_SUITE(CrossEntropyOf, ActivationTypes);

struct Case {
  int64_t rows, classes, stride;
};

TYPED_TEST(CrossEntropyOf, EveryShapeAndTargetEqualsTheReference) {
  using T = TypeParam;
  for (const Case& c :
       {Case{0, 5, 5}, Case{3, 1, 1}, Case{7, 10, 16}, Case{9, 37, 37}, Case{5, 256, 256}, Case{6, 257, 264},
        Case{3, 1025, 1032}, Case{2, 5003, 5003}, Case{2, 9001, 9008}, Case{2, 20001, 20008}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.classes << " of " << c.stride);
    SplitMix64 random(static_cast<uint64_t>(c.classes));
    const auto cells = static_cast<size_t>(c.rows * c.classes);
    std::vector<float> x = RandomIn<T>(static_cast<uint64_t>(c.classes), c.rows * c.classes, 6);
    std::vector<int32_t> targets(static_cast<size_t>(c.rows));
    for (int64_t r = 0; r < c.rows; ++r) {
      auto& target = targets[static_cast<size_t>(r)];
      target = r % 3 == 2 ? -1 : static_cast<int32_t>(random.Below(static_cast<uint64_t>(c.classes)));
      float* const row = x.data() + r * c.classes;
      // In every other row that counts, the target has the largest logit; once an equal one follows.
      if (r % 2 == 0 && target >= 0) row[target] = 7;
      if (r % 4 == 0 && c.classes > 1 && target >= 0) row[c.classes - 1] = 7;
    }
    const std::vector<float> weights = RandomFloats(8, c.rows);
    std::vector<float> padded(static_cast<size_t>(c.rows * c.stride),
                              1e30f);  // arbitrary values in the padding
    for (int64_t r = 0; r < c.rows; ++r) {
      std::copy_n(x.begin() + r * c.classes, c.classes, padded.begin() + r * c.stride);
    }
    const auto [losses, hits, gradient, losses_alone, hits_alone, untouched] = InAllOrders([&] {
      const Guarded<int32_t> t(targets);
      const Guarded<float> w(weights);
      Guarded<T> logits(As<T>(padded));
      const auto rows = static_cast<size_t>(c.rows);
      Guarded<float> l(rows), l2(rows);
      Guarded<uint8_t> h(rows), h2(rows);
      CrossEntropy(kStream, c.rows, c.classes, c.stride, static_cast<const T*>(logits.get()), t.get(),
                   l2.get(), h2.get());
      const std::vector<T> before = logits.values();
      // Two calls, since rows are independent.
      const int64_t first = c.rows / 2;
      CrossEntropyGradient(kStream, first, c.classes, c.stride, logits.get(), t.get(), w.get(), l.get(),
                           h.get());
      CrossEntropyGradient(kStream, c.rows - first, c.classes, c.stride, logits.get() + first * c.stride,
                           t.get() + first, w.get() + first, l.get() + first, h.get() + first);
      return std::tuple(l.values(), h.values(), logits.values(), l2.values(), h2.values(), before);
    });
    std::vector<float> want_losses(static_cast<size_t>(c.rows));
    std::vector<uint8_t> want_hits(static_cast<size_t>(c.rows));
    reference::CrossEntropyGradient(c.rows, c.classes, x.data(), targets.data(), weights.data(),
                                    want_losses.data(), want_hits.data());
    ExpectNear(losses, want_losses, 3e-6f, 1e-6f);
    EXPECT_EQ(hits, want_hits);
    EXPECT_EQ(losses_alone, losses);
    EXPECT_EQ(hits_alone, hits);
    EXPECT_TRUE(SameBits(std::tuple(untouched), std::tuple(As<T>(padded))));
    std::vector<float> got(cells);
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t i = 0; i < c.stride; ++i) {
        const float value = ToFloat(gradient[static_cast<size_t>(r * c.stride + i)]);
        if (i < c.classes) {
          got[static_cast<size_t>(r * c.classes + i)] = value;
        } else {
          ASSERT_EQ(value, 0.0f);
        }
      }
    }
    ExpectNear(got, x, 3e-7f, std::is_same_v<T, float> ? 2e-5f : Rounding<T>());
  }
}

TEST(RowWeights, AreOneOverTheRowsThatCount) {
  const std::vector<int32_t> targets = {1, -1, 3, -1, -1, -1, 0, 0, 0};
  const auto [weights] = InAllOrders([&] {
    const Guarded<int32_t> t(targets);
    Guarded<float> w(targets.size());
    RowWeights(kStream, 3, 3, t.get(), w.get());
    return std::tuple(w.values());
  });
  const float third = static_cast<float>(1.0 / 3.0);
  EXPECT_EQ(weights, (std::vector<float>{0.5f, 0.5f, 0.5f, 0, 0, 0, third, third, third}));
}

TEST(SumLosses, IsTheSumOverSamplesOfTheirMeans) {
  for (const int64_t samples : {0, 1, 3, 40}) {
    for (const int64_t rows : {1, 31, 100}) {
      SCOPED_TRACE(testing::Message() << samples << " samples of " << rows);
      SplitMix64 random(static_cast<uint64_t>(samples * 1000 + rows));
      const auto n = static_cast<size_t>(samples * rows);
      const std::vector<float> losses = RandomFloats(9, samples * rows, 5);
      std::vector<uint8_t> hits(n);
      std::vector<int32_t> targets(n);
      for (size_t i = 0; i < n; ++i) {
        hits[i] = random.Chance(0.4) ? 1 : 0;
        targets[i] = random.Chance(0.3) || i < static_cast<size_t>(rows)
                         ? -1
                         : 4;  // sample 0 has no target that counts
      }
      const auto [sums] = InAllOrders([&] {
        const Guarded<float> l(losses);
        const Guarded<uint8_t> h(hits);
        const Guarded<int32_t> t(targets);
        Guarded<LossSums> per_sample(static_cast<size_t>(samples)), total(1);
        SumLosses(kStream, samples, rows, l.get(), h.get(), t.get(), per_sample.get(), total.get());
        return std::tuple(total.values());
      });
      LossSums want;
      for (int64_t s = 0; s < samples; ++s) {
        double loss = 0;
        int64_t counted = 0;
        for (auto i = static_cast<size_t>(s * rows); i < static_cast<size_t>((s + 1) * rows); ++i) {
          if (targets[i] < 0) continue;
          loss += static_cast<double>(losses[i]);
          want.correct += hits[i];
          ++counted;
        }
        if (counted > 0) want.loss += loss / static_cast<double>(counted);
        want.predictions += counted;
      }
      EXPECT_NEAR(sums[0].loss, want.loss, 1e-12);
      EXPECT_EQ(sums[0].correct, want.correct);
      EXPECT_EQ(sums[0].predictions, want.predictions);
    }
  }
}

}  // namespace
}  // namespace ringmaster::cuda::kernels
