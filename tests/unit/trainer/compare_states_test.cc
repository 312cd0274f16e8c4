// SPDX-License-Identifier: Apache-2.0

// Members that hold different states notice it.
#include "worker/trainer/compare_states.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "tests/unit/trainer/ranks.h"

namespace ringmaster::trainer {
namespace {

const std::vector<std::string> kPods = {"pod-0", "pod-1", "pod-2", "pod-3"};

class CompareStatesTest : public testing::Test {
 protected:
  // Returns what the members say, which must be the same on all.
  std::string Compare(const std::vector<std::vector<StatePart>>& parts) {
    std::vector<std::unique_ptr<fabric::Fabric>> fabrics;
    std::vector<std::string> addresses;
    for (size_t r = 0; r < parts.size(); ++r) {
      fabrics.push_back(
          fabric::Fabric::Create({.transport = "shm", .timeout = seconds(60), .host_id = ""}).value());
      addresses.push_back(fabrics.back()->Address());
    }
    std::mutex mutex;
    std::set<std::string> said;
    std::vector<std::thread> threads;
    for (size_t r = 0; r < parts.size(); ++r) {
      threads.emplace_back([&, r] {
        const auto comm = fabrics[r]->Connect({1, static_cast<int>(r), addresses}).value();
        const auto text = CompareStates(comm.get(), parts[r], kPods);
        ASSERT_TRUE(text.ok()) << text.error().message;
        const std::lock_guard lock(mutex);
        said.insert(*text);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(said.size(), 1u);
    return *said.begin();
  }
};

TEST_F(CompareStatesTest, NamesTheOddWorkerAndWhatDiffers) {
  const std::vector<StatePart> same = {{"weight", 1}, {"bias", 2}, {"momentum", 3}};
  EXPECT_EQ(Compare({same, same, same}), "");
  EXPECT_EQ(Compare({same, {{"weight", 1}, {"bias", 9}, {"momentum", 3}}, same}),
            "pod-1 (rank 1) differs from the others in bias");
  EXPECT_EQ(Compare({same, same, same, {{"weight", 8}, {"bias", 9}, {"momentum", 3}}}),
            "pod-3 (rank 3) differs from the others in weight, bias");
  EXPECT_EQ(Compare({same, {{"weight", 1}, {"bias", 2}, {"momentum", 4}}}),
            "pod-0 (rank 0), pod-1 (rank 1) differ in momentum");
}

TEST_F(CompareStatesTest, ArraysMayBeMissingOrHaveOtherNames) {
  const std::vector<StatePart> same = {{"weight", 1}, {"bias", 2}};
  EXPECT_EQ(Compare({same, same, {{"weight", 1}}}),
            "pod-2 (rank 2) differs from the others in the number of arrays");
  EXPECT_EQ(Compare({{{"weights", 1}, {"bias", 2}}, same, same}),
            "pod-0 (rank 0) differs from the others in the names of the arrays");
}

TEST_F(CompareStatesTest, AMemberWithoutAStateIsNotCompared) {
  const std::vector<StatePart> same = {{"weight", 1}, {"bias", 2}};
  EXPECT_EQ(Compare({{}, same, same}), "");
}

// Memory that changes after the update has hashed it shows in the step after the next one, in any array.
TEST(States, ABitThatFlipsOnOneRankIsNoticedWithinTwoSteps) {
  TempFolder folder;
  const RunConfig config = Gpt(&folder);
  for (const size_t part : {0, 1, 2}) {
    Ranks ranks;
    for (int r = 0; r < 3; ++r) ranks.push_back(std::make_unique<Rank>(config));
    Connect(&ranks, 1);
    OnAll(&ranks, [part](Rank* rank) {
      if (rank->comm->rank() == 0) rank->Initialise();
      ASSERT_TRUE(
          ShareState(rank->comm.get(), std::vector<int32_t>{0}, rank->state.get(), &rank->records).ok());
      rank->Steps(3);
      if (rank->comm->rank() == 1) {
        const std::vector<TrainState::Part> parts = rank->state->Parts().value();
        parts[part].bytes[6] ^= std::byte{1};  // in the mantissa of the second element
      }
      const auto step = [rank] {
        return rank->stepper->Run({rank->comm.get()}, &rank->cancel, [] { return false; });
      };
      const auto first = step();
      ASSERT_TRUE(first.ok()) << first.error().message;
      EXPECT_FALSE(first->states_differ) << "the hashes are those of the update";
      const auto second = step();
      ASSERT_TRUE(second.ok()) << second.error().message;
      EXPECT_TRUE(second->states_differ);
      EXPECT_EQ(rank->state->step(), 4) << "the step is not committed";
    });
  }
}

}  // namespace
}  // namespace ringmaster::trainer
