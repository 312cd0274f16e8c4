// SPDX-License-Identifier: Apache-2.0

// What a plan of preemption reads of thousands of jobs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "operator/core/queue/preemption.h"

namespace ringmaster::core {
namespace {

std::optional<RoomHolder> Holder(const std::string& job, int32_t workers) {
  RoomHolder holder;
  holder.job = job;
  holder.workers = workers;
  return holder;
}

TEST(RoomHolders, OnlyJobsThatHaveChangedAreReadAgain) {
  std::vector<std::string> jobs;
  for (int i = 0; i < 10'000; ++i) jobs.push_back(fmt::format("ml/job-{}", i));
  const auto all = [&] { return jobs; };
  RoomHolders holders;
  holders.Changed("ml/job-1");  // nothing is remembered before the first plan
  EXPECT_EQ(holders.TakeChanged(all).size(), 10'000U);
  for (const std::string& job : jobs) holders.Put(job, Holder(job, 1));
  EXPECT_TRUE(holders.TakeChanged(all).empty());
  holders.Changed("ml/job-7");
  holders.Changed("ml/job-7");
  EXPECT_EQ(holders.TakeChanged(all), std::set<std::string>{"ml/job-7"});
  holders.Put("ml/job-7", Holder("ml/job-7", 3));
  EXPECT_EQ(holders.holders().size(), 10'000U);
  EXPECT_EQ(holders.holders()[7].workers, 3);
  holders.Clear();
  EXPECT_TRUE(holders.holders().empty());
  holders.Changed("ml/job-7");
  EXPECT_EQ(holders.TakeChanged(all).size(), 10'000U);
}

TEST(RoomHolders, AgreeWithAMap) {
  SplitMix64 rng(1);
  RoomHolders holders;
  std::map<std::string, int32_t> expected;
  for (int step = 0; step < 2'000; ++step) {
    const std::string job = fmt::format("ml/{}", rng.Below(20));
    const auto workers = static_cast<int32_t>(rng.Below(100));
    if (rng.Chance(0.4)) {
      expected.erase(job);
      holders.Put(job, std::nullopt);
    } else {
      expected[job] = workers;
      holders.Put(job, Holder(job, workers));
    }
    std::map<std::string, int32_t> held;
    for (const RoomHolder& holder : holders.holders()) held.emplace(holder.job, holder.workers);
    ASSERT_EQ(held, expected);
    ASSERT_EQ(holders.holders().size(), expected.size());
  }
}

}  // namespace
}  // namespace ringmaster::core
