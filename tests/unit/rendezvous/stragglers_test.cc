// SPDX-License-Identifier: Apache-2.0

// Busy times: the windows, the rule, and the coordinator that applies it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/rendezvous/coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

using Changes = std::vector<StragglerRule::Change>;

std::vector<RankBusyTime> Window(const std::vector<double>& seconds,
                                 const std::vector<int>& micro_batches = {}) {
  std::vector<RankBusyTime> ranks;
  for (size_t i = 0; i < seconds.size(); ++i)
    ranks.push_back(
        {seconds[i] < 0 ? 0 : 10, seconds[i], seconds[i], micro_batches.empty() ? 1 : micro_batches[i]});
  return ranks;
}

TEST(StragglerRule, MarksASlowRankAfterThreeWindows) {
  StragglerRule rule(4);
  EXPECT_EQ(rule.Add(Window({1, 1, 1.3, 1})), Changes{});
  EXPECT_EQ(rule.Add(Window({1, 1, 1.3, 1})), Changes{});
  EXPECT_EQ(rule.Add(Window({1, 1, 1.3, 1})), (Changes{{2, true, 1.3}}));
  EXPECT_EQ(rule.Add(Window({1, 1, 1.3, 1})), Changes{});
  EXPECT_TRUE(rule.IsStraggler(2));
  EXPECT_FALSE(rule.IsStraggler(0));
}

TEST(StragglerRule, AnInterruptionStartsTheCountAgain) {
  StragglerRule rule(3);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(rule.Add(Window({1, 1, i % 3 == 2 ? 1.1 : 2})), Changes{}) << i;
}

TEST(StragglerRule, AStragglerRecoversAfterThreeWindows) {
  StragglerRule rule(2);
  for (int i = 0; i < 3; ++i) rule.Add(Window({1, 2}));
  ASSERT_TRUE(rule.IsStraggler(1)) << "of two ranks, the faster one is the median";
  rule.Add(Window({1, 1}));
  rule.Add(Window({1, 1}));
  EXPECT_TRUE(rule.IsStraggler(1));
  EXPECT_EQ(rule.Add(Window({1, 1})), (Changes{{1, false, 1}}));
}

TEST(StragglerRule, MoreMicroBatchesAreNoStraggling) {
  StragglerRule rule(3);  // 4 micro-batches on 3 ranks; 0.1 s of each step is the same for all
  for (int i = 0; i < 9; ++i) EXPECT_EQ(rule.Add(Window({1.1, 1.1, 2.1}, {1, 1, 2})), Changes{});
  StragglerRule costly(3);  // fixed costs weigh more on a rank with fewer micro-batches
  for (int i = 0; i < 9; ++i) EXPECT_EQ(costly.Add(Window({1.5, 2, 2}, {1, 2, 2})), Changes{});
  StragglerRule slow(3);
  for (int i = 0; i < 2; ++i) slow.Add(Window({1, 1, 4}, {1, 1, 2}));
  EXPECT_EQ(slow.Add(Window({1, 1, 4}, {1, 1, 2})), (Changes{{2, true, 4}}));
}

TEST(StragglerRule, ARankWithoutReportStaysWhatItIs) {
  StragglerRule rule(3);
  for (int i = 0; i < 3; ++i) rule.Add(Window({1, 1, 2}));
  for (int i = 0; i < 9; ++i) EXPECT_EQ(rule.Add(Window({1, 1, -1})), Changes{});
  EXPECT_TRUE(rule.IsStraggler(2));
  for (int i = 0; i < 9; ++i)
    EXPECT_EQ(rule.Add(Window({-1, -1, 2})), Changes{}) << "nothing to compare with";
  EXPECT_EQ(StragglerRule().Add({}), Changes{});
}

BusyTime Busy(double seconds, Generation generation = 5) {
  return {generation, 7, 10, seconds, 2 * seconds, 3};
}

TEST(BusyWindow, EndsWhenEachRankHasReported) {
  BusyWindow window(5, {"a", "b"});
  const Time start{};
  EXPECT_FALSE(window.Close(start)) << "nothing is reported";
  window.Add(0, Busy(1));
  EXPECT_FALSE(window.Close(start + seconds(2))) << "rank 1 is missing";
  window.Add(1, Busy(3));
  window.Add(1, Busy(1));
  const auto closed = window.Close(start + seconds(2));
  ASSERT_TRUE(closed);
  EXPECT_EQ(*closed->pods, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(closed->step, 7);
  EXPECT_EQ(closed->ranks[1].steps, 20);
  EXPECT_EQ(closed->ranks[1].seconds, 2);
  EXPECT_EQ(closed->ranks[1].longest, 6);
  EXPECT_EQ(ImbalanceOf(*closed), 2);
  window.Add(0, Busy(1));
  window.Add(1, Busy(1));
  EXPECT_FALSE(window.Close(start + milliseconds(2900)));
  EXPECT_TRUE(window.Close(start + seconds(3)));
}

TEST(BusyWindow, DoesNotWaitForAnEarlierBuild) {
  BusyWindow window(5, {"a", "b"});
  EXPECT_FALSE(window.Close(Time{}));
  window.Add(0, Busy(1));
  const auto closed = window.Close(Time{} + seconds(3));
  ASSERT_TRUE(closed);
  EXPECT_EQ(closed->ranks[1].steps, 0);
  EXPECT_FALSE(ImbalanceOf(*closed));
}

TEST(BusyWindow, IgnoresNumbersThatAreNoTimes) {
  BusyWindow window(5, {"a"});
  EXPECT_FALSE(window.Close(Time{}));
  for (const double bad : {std::nan(""), -1.0, HUGE_VAL, 1e300}) {
    window.Add(0, Busy(bad));
    window.Add(0, {5, 7, 10, 1, bad, 3});
  }
  window.Add(0, {5, 7, 0, 1, 1, 3});
  window.Add(0, {5, 7, -1, 1, 1, 3});
  window.Add(0, {5, 7, 1, 1, 1, 0});
  EXPECT_FALSE(window.Close(Time{} + seconds(9)));
  for (int i = 0; i < 3; ++i) window.Add(0, {5, 7, std::numeric_limits<int64_t>::max(), 1, 1, 1});
  EXPECT_NEAR(window.Close(Time{} + seconds(9))->ranks[0].seconds, 1, 1e-9);
}

class StragglerTest : public CoordinatorTest {
 protected:
  // The members' pings of one second, with their busy times by connection.
  void Report(const std::vector<double>& seconds_by_connection, Generation generation) {
    for (size_t i = 0; i < seconds_by_connection.size(); ++i)
      On(MessageFrom{i + 1, Ping{Busy(seconds_by_connection[i], generation)}});
    Pass(seconds(1));
  }
  Generation Current() { return coordinator_->report().generation; }
  size_t Lines(EventKind kind, const std::string& pod) {
    return static_cast<size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const EventLine& line) {
      return line.kind == kind && line.pod == pod;
    }));
  }
};

TEST_F(StragglerTest, TheReportNamesStragglers) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  for (int i = 0; i < 6; ++i) Report({0.01, 0.02, 0.01}, Current());
  EXPECT_EQ(coordinator_->report().stragglers, std::vector<std::string>{"pod-2"});
  EXPECT_EQ(Lines(EventKind::kStraggler, "pod-2"), 1u);
  for (int i = 0; i < 6; ++i) Report({0.01, 0.01, 0.01}, Current());
  EXPECT_TRUE(coordinator_->report().stragglers.empty());
  EXPECT_EQ(Lines(EventKind::kStragglerEnded, "pod-2"), 1u);
  EXPECT_EQ(Lines(EventKind::kStraggler, "pod-1") + Lines(EventKind::kStraggler, "pod-3"), 0u);
}

TEST_F(StragglerTest, ReportsOfAnotherGenerationDoNotCount) {
  Make(1, 2, 2);
  Form({1, 2});
  for (int i = 0; i < 6; ++i) Report({0.01, 0.02}, Current() - 1);
  EXPECT_TRUE(coordinator_->report().stragglers.empty());
}

TEST_F(StragglerTest, ANewGenerationStartsWithoutStragglers) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  for (int i = 0; i < 6; ++i) Report({0.01, 0.02, 0.01}, Current());
  ASSERT_EQ(coordinator_->report().stragglers.size(), 1u);
  On(MessageFrom{3, Down{Id(3), "mutex", 137, ""}});
  Pass(seconds(1));
  for (const ConnectionId c : {1, 2}) Answer(c, 7);
  ASSERT_EQ(coordinator_->report().phase, GangPhase::kActive);
  EXPECT_TRUE(coordinator_->report().stragglers.empty());
}

TEST_F(StragglerTest, BusyTimesCauseNoMessage) {
  Make(1, 2, 2);
  Form({1, 2});
  const size_t sent = sent_.size();
  for (int i = 0; i < 6; ++i) Report({0.01, 0.02}, Current());
  EXPECT_EQ(sent_.size(), sent);
}

}  // namespace
}  // namespace ringmaster::rendezvous
