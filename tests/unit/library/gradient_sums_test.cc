// SPDX-License-Identifier: Apache-2.0

#include "worker/library/gradient_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "worker/fabric/fabric.h"

namespace ringmaster::library {
namespace {

using Outcome = GradientSums::Outcome;

constexpr int kMicroBatches = 8;
// The second tensor spans blocks and ends within one, the last one is smaller than a block.
const std::vector<Tensor> kTensors = {{"a", 1024}, {"b", 2500}, {"statistic", 70, false}, {"c", 3}};

// The gradient of a tensor in a micro-batch: a pure function of both, as a program's is.
std::vector<float> Gradient(int tensor, int v) {
  SplitMix64 rng(static_cast<uint64_t>(tensor * 1000 + v));
  std::vector<float> values(static_cast<size_t>(kTensors[static_cast<size_t>(tensor)].elements));
  for (float& value : values)
    value = (static_cast<float>(rng.Next() % 20001) - 10000.0f) *
            std::ldexp(1.0f, static_cast<int>(rng.Next() % 20) - 24);
  return values;
}

// One rank: its fabric and sums. Ranks are threads of this process.
struct Rank {
  std::unique_ptr<fabric::Fabric> fabric;
  std::unique_ptr<GradientSums> sums;
};

std::vector<Rank> Ranks(int world, GradientSums::Options options) {
  options.tensors = kTensors;
  options.micro_batches = kMicroBatches;
  std::vector<Rank> ranks(static_cast<size_t>(world));
  for (Rank& rank : ranks) {
    rank.fabric = fabric::Fabric::Create({.transport = "shm", .host_id = ""}).value();
    rank.sums = GradientSums::Create(rank.fabric.get(), options).value();
  }
  return ranks;
}

std::vector<std::string> AddressesOf(const std::vector<Rank>& ranks) {
  std::vector<std::string> addresses;
  for (const Rank& rank : ranks) addresses.push_back(rank.fabric->Address());
  return addresses;
}

void ComputeShare(GradientSums* sums, int first, int end, int* computed = nullptr) {
  for (int v = first; v < end; ++v) {
    if (!sums->BeginMicroBatch(v)) continue;
    for (int tensor = 0; tensor < static_cast<int>(kTensors.size()); ++tensor)
      sums->Add(tensor, Gradient(tensor, v));
    sums->EndMicroBatch(1.0 / (v + 3));
    if (computed != nullptr) ++*computed;
  }
}

struct Seen {
  std::vector<std::vector<float>> gradients;
  double loss = 0;
  double norm = 0;
  std::vector<int32_t> exponents;
  bool operator==(const Seen&) const = default;
};

// Takes a step with `world` ranks, repeating it as long as it asks for that, and returns what each rank has.
std::vector<Seen> TakeStep(std::vector<Rank>& ranks, uint64_t generation, int* repeats = nullptr) {
  const std::vector<std::string> addresses = AddressesOf(ranks);
  const int world = static_cast<int>(ranks.size());
  std::vector<Seen> seen(ranks.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      Rank& rank = ranks[static_cast<size_t>(r)];
      const auto comm = rank.fabric->Connect({generation, r, addresses}).value();
      const int first = kMicroBatches * r / world;
      const int end = kMicroBatches * (r + 1) / world;
      Seen& own = seen[static_cast<size_t>(r)];
      while (true) {
        rank.sums->Begin(comm.get(), 1, first, end);
        ComputeShare(rank.sums.get(), first, end);
        const auto reduced = rank.sums->Reduce([] { return false; });
        ASSERT_TRUE(reduced.ok()) << reduced.error().message;
        if (reduced->outcome == Outcome::kRepeat) {
          if (r == 0 && repeats != nullptr) ++*repeats;
          continue;
        }
        ASSERT_EQ(reduced->outcome, Outcome::kReduced);
        own.loss = reduced->loss;
        own.norm = reduced->norm;
        break;
      }
      for (int tensor = 0; tensor < static_cast<int>(kTensors.size()); ++tensor) {
        own.gradients.emplace_back(static_cast<size_t>(kTensors[static_cast<size_t>(tensor)].elements));
        rank.sums->Read(tensor, own.gradients.back());
      }
      rank.sums->Commit();
      own.exponents.assign(rank.sums->exponents().begin(), rank.sums->exponents().end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seen;
}

class ExactSums : public ::testing::TestWithParam<int> {};

TEST_P(ExactSums, AreTheSameBitsForEveryWorld) {
  std::vector<Rank> alone = Ranks(1, {.limbs = GetParam()});
  int repeats = 0;
  const Seen expected = TakeStep(alone, 1, &repeats)[0];
  EXPECT_EQ(repeats, 1) << "the first step has no exponents";
  for (const int world : {2, 3, 5, 8}) {
    std::vector<Rank> ranks = Ranks(world, {.limbs = GetParam()});
    for (const Seen& seen : TakeStep(ranks, 1)) EXPECT_TRUE(seen == expected) << world;
  }
}

TEST_P(ExactSums, AreCloseToTheMean) {
  std::vector<Rank> alone = Ranks(1, {.limbs = GetParam()});
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
  std::vector<Rank> alone = Ranks(1, {.limbs = GetParam()});
  const Seen expected = TakeStep(alone, 1)[0];

  std::vector<Rank> survivor = Ranks(1, {.limbs = GetParam()});
  (void)TakeStep(survivor, 1);
  GradientSums& sums = *survivor[0].sums;
  const std::vector<std::string> addresses = AddressesOf(survivor);
  std::vector<Rank> reference = Ranks(1, {.limbs = GetParam()});
  (void)TakeStep(reference, 1);
  const Seen second = TakeStep(reference, 2)[0];

  // Two of its four micro-batches are complete and the third is in part there when the other worker is lost.
  auto comm = survivor[0].fabric->Connect({2, 0, addresses}).value();
  sums.Begin(comm.get(), 2, 2, 6);
  int computed = 0;
  ComputeShare(&sums, 2, 4, &computed);
  ASSERT_TRUE(sums.BeginMicroBatch(4));
  sums.Add(1, Gradient(1, 4));
  sums.Abandon();
  comm.reset();
  comm = survivor[0].fabric->Connect({3, 0, addresses}).value();
  sums.ResetAttempts();
  sums.Begin(comm.get(), 2, 0, kMicroBatches);
  ComputeShare(&sums, 0, kMicroBatches, &computed);
  EXPECT_EQ(computed, kMicroBatches) << "two were computed before the interruption, six after it";
  const auto reduced = sums.Reduce([] { return false; });
  ASSERT_TRUE(reduced.ok() && reduced->outcome == Outcome::kReduced);
  EXPECT_EQ(reduced->loss, second.loss);
  EXPECT_EQ(reduced->norm, second.norm);
  for (int tensor = 0; tensor < static_cast<int>(kTensors.size()); ++tensor) {
    std::vector<float> gradient(static_cast<size_t>(kTensors[static_cast<size_t>(tensor)].elements));
    sums.Read(tensor, gradient);
    EXPECT_EQ(gradient, second.gradients[static_cast<size_t>(tensor)]) << tensor;
  }
}

TEST_P(ExactSums, ANewStateForgetsWhatWasAdded) {
  std::vector<Rank> ranks = Ranks(1, {.limbs = GetParam()});
  (void)TakeStep(ranks, 1);
  GradientSums& sums = *ranks[0].sums;
  const auto comm = ranks[0].fabric->Connect({2, 0, AddressesOf(ranks)}).value();
  sums.Begin(comm.get(), 2, 0, kMicroBatches);
  int computed = 0;
  ComputeShare(&sums, 0, 3, &computed);
  sums.Abandon();
  sums.Begin(comm.get(), 3, 0, kMicroBatches);
  ComputeShare(&sums, 0, kMicroBatches, &computed);
  EXPECT_EQ(computed, 3 + kMicroBatches);
}

INSTANTIATE_TEST_SUITE_P(Limbs, ExactSums, ::testing::Values(1, 2));

TEST(GradientSums, ATensorThatWasNotAddedCountsAsZero) {
  for (const bool exact : {true, false}) {
    std::vector<Rank> ranks = Ranks(1, {.exact = exact});
    GradientSums& sums = *ranks[0].sums;
    const auto comm = ranks[0].fabric->Connect({1, 0, AddressesOf(ranks)}).value();
    Result<GradientSums::Reduced> reduced = GradientSums::Reduced{};
    do {
      sums.Begin(comm.get(), 1, 0, kMicroBatches);
      for (int v = 0; v < kMicroBatches; ++v) {
        ASSERT_TRUE(sums.BeginMicroBatch(v));
        const std::vector<float> ones(1024, 1.0f);
        if (v < 2) sums.Add(0, ones);
        sums.EndMicroBatch(0);
      }
      reduced = sums.Reduce([] { return true; });
    } while (reduced.ok() && reduced->outcome == Outcome::kRepeat);
    ASSERT_TRUE(reduced.ok());
    EXPECT_TRUE(reduced->stop_at_boundary);
    std::vector<float> gradient(1024);
    sums.Read(0, gradient);
    EXPECT_EQ(gradient, std::vector<float>(1024, 0.25f));
    std::vector<float> other(3, 7.0f);
    sums.Read(3, other);
    EXPECT_EQ(other, std::vector<float>(3, 0.0f));
    EXPECT_EQ(reduced->norm, 8.0);
  }
}

TEST(GradientSums, NamesTheTensorThatIsNotFinite) {
  std::vector<Rank> ranks = Ranks(1, {});
  GradientSums& sums = *ranks[0].sums;
  const auto comm = ranks[0].fabric->Connect({1, 0, AddressesOf(ranks)}).value();
  sums.Begin(comm.get(), 1, 0, kMicroBatches);
  for (int v = 0; v < kMicroBatches; ++v) {
    ASSERT_TRUE(sums.BeginMicroBatch(v));
    std::vector<float> values(3, 1.0f);
    if (v == 5) values[1] = std::numeric_limits<float>::quiet_NaN();
    sums.Add(3, values);
    sums.EndMicroBatch(0);
  }
  const auto reduced = sums.Reduce([] { return false; });
  ASSERT_TRUE(reduced.ok());
  EXPECT_EQ(reduced->outcome, Outcome::kNotFinite);
  EXPECT_EQ(reduced->culprit, "c");
}

TEST(GradientSums, FastSumsAgreeOnAllRanks) {
  std::vector<Rank> ranks = Ranks(3, {.exact = false});
  const std::vector<Seen> seen = TakeStep(ranks, 1);
  EXPECT_TRUE(seen[0] == seen[1] && seen[1] == seen[2]);
  std::vector<Rank> exact = Ranks(1, {.limbs = 2});
  const Seen expected = TakeStep(exact, 1)[0];
  EXPECT_NEAR(seen[0].norm, expected.norm, 1e-5 * expected.norm);
}

}  // namespace
}  // namespace ringmaster::library
