// SPDX-License-Identifier: Apache-2.0

#include "cli/history/gang_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ringmaster::cli {
namespace {

using testing::ElementsAre;
using Span = GangTimeline::Span;
using MarkKind = GangTimeline::MarkKind;

RunEvent At(double seconds, const std::string& reason, const std::string& pod = {}) {
  RunEvent event;
  event.monotonic_seconds = 1000 + seconds;
  event.reason = reason;
  event.pod = pod;
  return event;
}

RunEvent Formed(double seconds, std::vector<std::string> workers, std::optional<double> recovery = {}) {
  RunEvent event = At(seconds, "GenerationFormed");
  event.workers = std::move(workers);
  event.recovery_seconds = recovery;
  return event;
}

RunEvent Checkpoint(double seconds, int64_t step) {
  RunEvent event = At(seconds, "CheckpointPublished");
  event.step = step;
  return event;
}

std::vector<MarkKind> MarksOf(const GangTimeline::Lane& lane) {
  std::vector<MarkKind> kinds;
  for (const auto& mark : lane.marks) kinds.push_back(mark.kind);
  return kinds;
}

TEST(GangTimeline, AStopIsNotAKill) {
  RunEvent stop = At(2, "Chaos", "w-1"), kill = At(4, "Chaos", "w-0");
  stop.signal = "SIGSTOP";
  kill.signal = "SIGKILL";
  RunEvent stopped = At(3, "WorkerFailed", "w-1"), died = At(4.1, "WorkerFailed", "w-0");
  stopped.evidence = "stopped";
  died.evidence = "mutex";
  const GangTimeline timeline =
      TimelineOf({At(0, "Started"), Formed(1, {"w-0", "w-1"}), stop, stopped, kill, died});
  EXPECT_THAT(MarksOf(timeline.lanes[0]), ElementsAre(MarkKind::kStruck, MarkKind::kFailed));
  EXPECT_THAT(MarksOf(timeline.lanes[1]), ElementsAre(MarkKind::kStopped, MarkKind::kHung));
  EXPECT_THAT(timeline.lanes[1].spans, ElementsAre(Span{1, 3, 1}));
}

TEST(GangTimeline, WorkersThatEndOrAreReplacedLeaveTheirLanes) {
  const GangTimeline timeline = TimelineOf(
      {Formed(0, {"w-0", "w-1", "w-2"}), At(2, "WorkerEnded", "w-1"), At(3, "Restarting"), At(9, "x")});
  EXPECT_EQ(timeline.zero, 1000);
  EXPECT_THAT(timeline.lanes[0].spans, ElementsAre(Span{0, 3, 1}));
  EXPECT_THAT(timeline.lanes[1].spans, ElementsAre(Span{0, 2, 1}));
  EXPECT_TRUE(timeline.lanes[1].marks.empty());
}

TEST(GangTimeline, AKilledWorkerLeavesItsLaneAndComesBack) {
  const GangTimeline timeline = TimelineOf(
      {At(0, "Started"), Formed(1, {"w-10", "w-2"}), At(5, "Chaos", "w-2"), At(5.25, "WorkerFailed", "w-2"),
       Formed(5.5, {"w-10"}, 0.25), Formed(6, {"w-10", "w-2"}), Checkpoint(7, 50), At(8, "Succeeded")});
  ASSERT_EQ(timeline.lanes.size(), 2U);
  EXPECT_EQ(timeline.lanes[0].pod, "w-2") << "numbers sort by value";
  EXPECT_THAT(timeline.lanes[0].spans, ElementsAre(Span{1, 5.25, 1}, Span{6, 8, 3}));
  EXPECT_THAT(timeline.lanes[1].spans, ElementsAre(Span{1, 5.5, 1}, Span{5.5, 6, 2}, Span{6, 8, 3}));
  EXPECT_THAT(MarksOf(timeline.lanes[0]),
              ElementsAre(MarkKind::kStruck, MarkKind::kFailed, MarkKind::kJoined));
  ASSERT_EQ(timeline.recoveries.size(), 1U);
  EXPECT_NEAR(timeline.recoveries[0].begin, 5.25, 1e-9);
  EXPECT_NEAR(*MedianRecoverySeconds(timeline), 0.25, 1e-9);
  ASSERT_EQ(timeline.checkpoints.size(), 1U);
  EXPECT_EQ(timeline.checkpoints[0].step, 50);
  EXPECT_TRUE(timeline.ended);
  EXPECT_DOUBLE_EQ(timeline.end, 8);
}

TEST(GangTimeline, ARunThatIsStillGoingEndsAtItsLastEvent) {
  const GangTimeline timeline = TimelineOf({At(0, "Started"), Formed(1, {"w-0"}), Checkpoint(4, 10)});
  EXPECT_FALSE(timeline.ended);
  EXPECT_THAT(timeline.lanes.at(0).spans, ElementsAre(Span{1, 4, 1}));
}

TEST(GangTimeline, OnlyTheNewestRunOfTheFileCounts) {
  const GangTimeline timeline =
      TimelineOf({At(0, "Started"), Formed(1, {"old"}), At(3, "Interrupted"), At(-500, "Started"),
                  Formed(-499, {"new"}), At(-490, "Succeeded")});
  ASSERT_EQ(timeline.lanes.size(), 1U);
  EXPECT_EQ(timeline.lanes[0].pod, "new");
  EXPECT_THAT(timeline.lanes[0].spans, ElementsAre(Span{1, 10, 1}));
}

TEST(GangTimeline, NothingComesOutOfNothing) {
  const GangTimeline timeline = TimelineOf({});
  EXPECT_TRUE(timeline.lanes.empty());
  EXPECT_FALSE(MedianRecoverySeconds(timeline).has_value());
}

}  // namespace
}  // namespace ringmaster::cli
