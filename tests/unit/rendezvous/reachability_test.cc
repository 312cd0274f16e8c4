// SPDX-License-Identifier: Apache-2.0

// Members between which no transport leads: the odd ones are refused, and the others continue.
#include "rendezvous/reachability.h"

#include <gmock/gmock.h>

#include <set>

#include "base/rng.h"
#include "tests/unit/rendezvous/coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

TEST(Reachability, WithoutUnreachablePeersNoRankIsOdd) {
  Reachability reachability(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(reachability.all_reported());
    reachability.Add(rank, {});
    reachability.Add(rank, {});
  }
  EXPECT_TRUE(reachability.all_reported());
  EXPECT_THAT(reachability.OddRanks(), Optional(IsEmpty()));
}

TEST(Reachability, OfTwoRanksNoneIsOdd) {
  Reachability reachability(2);
  reachability.Add(0, {1});
  EXPECT_EQ(reachability.OddRanks(), std::nullopt);
}

TEST(Reachability, OneSideIsEnough) {
  Reachability reachability(3);
  reachability.Add(1, {0});
  reachability.Add(2, {0});
  EXPECT_THAT(reachability.OddRanks(), Optional(ElementsAre(0)));
}

TEST(Reachability, OfAPairTheHighestRankIsOdd) {
  Reachability reachability(5);
  reachability.Add(1, {3});
  EXPECT_THAT(reachability.OddRanks(), Optional(ElementsAre(3)));
}

TEST(Reachability, RanksOutsideTheWorldAreIgnored) {
  Reachability reachability(2);
  reachability.Add(0, {-1, 0, 2, 1 << 30});
  reachability.Add(5, {1});
  EXPECT_THAT(reachability.OddRanks(), Optional(IsEmpty()));
}

TEST(Reachability, FindsEveryMinorityThatReachesNoOther) {
  SplitMix64 rng(1);
  for (int round = 0; round < 2000; ++round) {
    const size_t world = 3 + rng.Below(10);
    std::set<int32_t> odd;
    for (size_t count = rng.Below((world + 1) / 2); odd.size() < count;)
      odd.insert(static_cast<int32_t>(rng.Below(world)));
    Reachability reachability(world);
    const bool all_report = rng.Below(2) == 0;
    for (size_t rank = 0; rank < world; ++rank) {
      const auto self = static_cast<int32_t>(rank);
      std::vector<int32_t> unreachable;
      for (int32_t peer = 0; peer < static_cast<int32_t>(world); ++peer)
        if (peer != self && (odd.contains(self) || odd.contains(peer))) unreachable.push_back(peer);
      if (all_report || !odd.contains(self)) reachability.Add(rank, unreachable);
    }
    const auto found = reachability.OddRanks();
    ASSERT_TRUE(found.has_value());
    // Odd ranks that do not report may not know that they do not reach each other: they are odd without that.
    EXPECT_EQ(std::set<int32_t>(found->begin(), found->end()), odd) << "round " << round;
  }
}

class ReachabilityTest : public CoordinatorTest {
 protected:
  void FormThree() {
    Make(1, 3, 3);
    Form({1, 2, 3});
    formed_ = *Last<NewGeneration>(1);
  }
  int32_t RankOf(ConnectionId c) const {
    int32_t rank = 0;
    while (formed_.members.at(static_cast<size_t>(rank)).id != Id(c)) ++rank;
    return rank;
  }
  void Report(ConnectionId c, std::vector<int32_t> unreachable) {
    On(MessageFrom{c, OperationFailed{formed_.generation, Id(c), "no transport leads to a rank", true,
                                      std::move(unreachable)}});
  }
  NewGeneration formed_;
};

TEST_F(ReachabilityTest, AMemberThatReachesNoOtherIsRefusedAtOnce) {
  FormThree();
  Report(2, {RankOf(1)});
  Report(1, {RankOf(2), RankOf(3)});
  EXPECT_FALSE(Last<Evict>(1).has_value());  // the third may see it otherwise
  Report(3, {RankOf(1)});
  ASSERT_TRUE(Last<Evict>(1).has_value());
  EXPECT_TRUE(Last<Evict>(1)->refused);
  EXPECT_THAT(Last<Evict>(1)->reason,
              HasSubstr("pod-1 cannot exchange data with the other workers: no transport leads to a rank"));
  Pass(milliseconds(100));
  Answer(2, 0);
  Answer(3, 0);
  const auto next = Last<NewGeneration>(2);
  ASSERT_TRUE(next.has_value());
  EXPECT_GT(next->generation, formed_.generation);
  EXPECT_EQ(next->members.size(), 2U);
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kActive);
}

TEST_F(ReachabilityTest, AMemberThatDoesNotReportDelaysTheDecision) {
  FormThree();
  Report(2, {RankOf(1)});
  Report(3, {RankOf(1)});
  Pass(seconds(9));
  EXPECT_FALSE(Last<Evict>(1).has_value());
  Pass(seconds(2));
  EXPECT_TRUE(Last<Evict>(1).has_value());
  EXPECT_NE(coordinator_->report().phase, GangPhase::kFailed);
}

TEST_F(ReachabilityTest, MembersOfWhichNoneReachesAnotherFailTheJob) {
  FormThree();
  for (const ConnectionId c : {1, 2, 3}) Report(c, {0, 1, 2});
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kFailed);
  EXPECT_EQ(Last<Exit>(1)->code, 64);
  EXPECT_EQ(Last<Exit>(1)->reason, "no transport leads to a rank");
}

TEST_F(ReachabilityTest, TwoMembersThatDoNotReachEachOtherFailTheJob) {
  Make(1, 2, 2);
  Form({1, 2});
  formed_ = *Last<NewGeneration>(1);
  Report(1, {RankOf(2)});
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kActive);
  Report(2, {RankOf(1)});
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kFailed);
}

// Builds before the list of ranks existed.
TEST_F(ReachabilityTest, WithoutRanksTheJobFails) {
  Make(1, 2, 2);
  Form({1, 2});
  formed_ = *Last<NewGeneration>(1);
  Report(2, {});
  Pass(seconds(11));
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kFailed);
  EXPECT_EQ(Last<Exit>(1)->code, 64);
}

}  // namespace
}  // namespace ringmaster::rendezvous
