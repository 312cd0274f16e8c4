// SPDX-License-Identifier: Apache-2.0

#include "worker/library/gradient_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/unit/library/sums_rig.h"

namespace ringmaster::library {
namespace {

class ExactSums : public ::testing::TestWithParam<int> {};

TEST_P(ExactSums, AreTheSameBitsForEveryWorld) {
  const Ranks alone = MakeRanks(1, {.limbs = GetParam()});
  int repeats = 0;
  const Seen expected = TakeStep(alone, 1, &repeats)[0];
  EXPECT_EQ(repeats, 1) << "the first step has no exponents";
  for (const int world : {2, 3, 5, 8}) {
    const Ranks ranks = MakeRanks(world, {.limbs = GetParam()});
    for (const Seen& seen : TakeStep(ranks, 1)) EXPECT_TRUE(seen == expected) << world;
  }
}

TEST_P(ExactSums, AreCloseToTheMean) {
  const Ranks alone = MakeRanks(1, {.limbs = GetParam()});
  const Seen seen = TakeStep(alone, 1)[0];
  double squares = 0;
  for (int tensor = 0; tensor < static_cast<int>(kTensors.size()); ++tensor) {
    const auto& gradient = seen.gradients[static_cast<size_t>(tensor)];
    double largest = 0;
    for (int v = 0; v < kMicroBatches; ++v)
      for (const float value : Gradient(tensor, v))
        largest = std::max(largest, std::abs(static_cast<double>(value)));
    for (size_t i = 0; i < gradient.size(); ++i) {
      double mean = 0;
      for (int v = 0; v < kMicroBatches; ++v)
        mean += static_cast<double>(Gradient(tensor, v)[i]) / kMicroBatches;
      EXPECT_NEAR(gradient[i], mean, largest * std::ldexp(1.0, -22));
      if (kTensors[static_cast<size_t>(tensor)].in_norm)
        squares += static_cast<double>(gradient[i]) * gradient[i];
    }
  }
  EXPECT_NEAR(seen.norm, std::sqrt(squares), 1e-9 * std::sqrt(squares)) << "the statistic does not count";
}

TEST_P(ExactSums, AnInterruptedStepKeepsItsMicroBatches) {
  const Ranks reference = MakeRanks(1, {.limbs = GetParam()});
  (void)TakeStep(reference, 1);
  const Seen second = TakeStep(reference, 2)[0];

  const Ranks survivor = MakeRanks(1, {.limbs = GetParam()});
  (void)TakeStep(survivor, 1);
  Rank& rank = *survivor[0];
  int computed = 0;
  const Seen seen = TakeInterruptedStep(rank, AddressesOf(survivor), &computed);
  EXPECT_EQ(computed, kMicroBatches) << "two were computed before the interruption, six after it";
  EXPECT_TRUE(seen == second);
}

TEST_P(ExactSums, ANewStateForgetsWhatWasAdded) {
  const Ranks ranks = MakeRanks(1, {.limbs = GetParam()});
  (void)TakeStep(ranks, 1);
  Rank& rank = *ranks[0];
  rank.Connect(2, 0, AddressesOf(ranks));
  ASSERT_TRUE(rank.Begin(2, 0, kMicroBatches).ok());
  int computed = 0;
  rank.ComputeShare(0, 3, &computed);
  rank.sums->Abandon();
  ASSERT_TRUE(rank.Begin(3, 0, kMicroBatches).ok());
  rank.ComputeShare(0, kMicroBatches, &computed);
  EXPECT_EQ(computed, 3 + kMicroBatches);
}

INSTANTIATE_TEST_SUITE_P(Limbs, ExactSums, ::testing::Values(1, 2));

TEST(GradientSums, ATensorThatWasNotAddedCountsAsZero) {
  for (const bool exact : {true, false}) {
    const Ranks ranks = MakeRanks(1, {.exact = exact});
    Rank& rank = *ranks[0];
    rank.Connect(1, 0, AddressesOf(ranks));
    const GradientSums::Reduced reduced = TakeStepOfFirstTensor(rank);
    EXPECT_TRUE(reduced.stop_at_boundary);
    EXPECT_EQ(rank.Read(0), std::vector<float>(1024, 0.25f));
    EXPECT_EQ(rank.Read(3), std::vector<float>(3, 0.0f));
    EXPECT_EQ(reduced.norm, 8.0);
  }
}

TEST(GradientSums, NamesTheTensorThatIsNotFinite) {
  const Ranks ranks = MakeRanks(1, {});
  ranks[0]->Connect(1, 0, AddressesOf(ranks));
  const GradientSums::Reduced reduced = TakeStepWithNan(*ranks[0]);
  EXPECT_EQ(reduced.outcome, Outcome::kNotFinite);
  EXPECT_EQ(reduced.culprit, "c");
}

TEST(GradientSums, FastSumsAgreeOnAllRanks) {
  const Ranks ranks = MakeRanks(3, {.exact = false});
  const std::vector<Seen> seen = TakeStep(ranks, 1);
  EXPECT_TRUE(seen[0] == seen[1] && seen[1] == seen[2]);
  const Ranks exact = MakeRanks(1, {.limbs = 2});
  const Seen expected = TakeStep(exact, 1)[0];
  EXPECT_NEAR(seen[0].norm, expected.norm, 1e-5 * expected.norm);
}

}  // namespace
}  // namespace ringmaster::library
