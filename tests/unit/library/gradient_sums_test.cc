// SPDX-License-Identifier: Apache-2.0

#include "worker/library/gradient_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
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

// The weights of a step: tokens, say.
const std::vector<double> kWeights = {3, 0, 1, 120, 7, 0, 1, 5};

Seen TakeWeightedStep(int world, const GradientSums::Options& options) {
  const Ranks ranks = MakeRanks(world, options);
  for (const auto& rank : ranks) rank->weights = kWeights;
  const std::vector<Seen> seen = TakeStep(ranks, 1);
  for (const Seen& other : seen) EXPECT_TRUE(other == seen[0]);
  return seen[0];
}

void ExpectWeightedMeans(const Seen& seen) {
  EXPECT_EQ(seen.weight, 137);
  double loss = 0, squares = 0;
  for (int v = 0; v < kMicroBatches; ++v) loss += kWeights[static_cast<size_t>(v)] / (v + 3) / 137;
  EXPECT_NEAR(seen.loss, loss, 1e-12);
  for (int tensor = 0; tensor < static_cast<int>(kTensors.size()); ++tensor) {
    const bool weighted = kTensors[static_cast<size_t>(tensor)].in_norm;
    const auto& gradient = seen.gradients[static_cast<size_t>(tensor)];
    for (size_t i = 0; i < gradient.size(); ++i) {
      double mean = 0;
      for (int v = 0; v < kMicroBatches; ++v)
        mean += static_cast<double>(Gradient(tensor, v)[i]) *
                (weighted ? kWeights[static_cast<size_t>(v)] / 137 : 1.0 / kMicroBatches);
      EXPECT_NEAR(gradient[i], mean, 1e-3) << tensor;
      if (weighted) squares += static_cast<double>(gradient[i]) * gradient[i];
    }
  }
  EXPECT_NEAR(seen.norm, std::sqrt(squares), 1e-6 * std::sqrt(squares));
}

TEST_P(ExactSums, WeightedMeansAreTheSameBitsForEveryWorld) {
  const Seen expected = TakeWeightedStep(1, {.limbs = GetParam()});
  ExpectWeightedMeans(expected);
  for (const int world : {2, 3, 8})
    EXPECT_TRUE(TakeWeightedStep(world, {.limbs = GetParam()}) == expected) << world;
}

TEST(FastSums, DivideByTheSumOfTheWeights) {
  for (const int world : {1, 3}) ExpectWeightedMeans(TakeWeightedStep(world, {.exact = false}));
}

TEST_P(ExactSums, WeightsOfZeroGiveZero) {
  const Ranks ranks = MakeRanks(1, {.limbs = GetParam()});
  ranks[0]->weights.assign(kMicroBatches, 0);
  const Seen seen = TakeStep(ranks, 1)[0];
  EXPECT_EQ(seen.weight, 0);
  EXPECT_EQ(seen.loss, 0);
  EXPECT_EQ(seen.norm, 0);
  EXPECT_EQ(seen.gradients[0], std::vector<float>(1024, 0.0f));
}

TEST_P(ExactSums, AMicroBatchWithoutAWeightIsNoticed) {
  const Ranks ranks = MakeRanks(1, {.limbs = GetParam()});
  Rank& rank = *ranks[0];
  rank.Connect(1, 0, AddressesOf(ranks));
  for (const bool gradient : {false, true}) {
    Outcome outcome = Outcome::kRepeat;
    while (outcome == Outcome::kRepeat) {
      ASSERT_TRUE(rank.Begin(1, 0, kMicroBatches).ok());
      for (int v = 0; v < kMicroBatches; ++v) {
        ASSERT_TRUE(rank.sums->BeginMicroBatch(v));
        if (v != 4 || gradient) {
          ASSERT_TRUE(rank.Add(0, Gradient(0, v)).ok());
        }
        ASSERT_TRUE(rank.sums->EndMicroBatch(0, v == 4 ? std::nullopt : std::optional(2.0)).ok());
      }
      outcome = rank.sums->Reduce([] { return false; }).value().outcome;
    }
    EXPECT_EQ(outcome, gradient ? Outcome::kMixed : Outcome::kReduced);
    if (!gradient) rank.sums->Commit();
  }
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
