// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/coordinator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/rendezvous/coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

TEST_F(CoordinatorTest, FormsWhenAllHaveJoinedAndNumbersByTerm) {
  Make(1, 2, 2);
  Join(1);
  EXPECT_FALSE(Last<Prepare>(1).has_value());
  Join(2);
  Answer(1, -1);
  EXPECT_FALSE(Last<NewGeneration>(1).has_value());
  Answer(2, -1);
  const auto next = Last<NewGeneration>(2);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->generation >> 32, 7u);
  EXPECT_EQ(next->members.size(), 2u);
  EXPECT_TRUE(next->sources.empty());
  EXPECT_EQ(next->start_step, -1);
}

TEST_F(CoordinatorTest, FactsAreReportedAndEachDeviceFaultIsLoggedOnce) {
  Make(1, 2, 2);
  Form({2, 1});
  const auto said = [&](const std::string& text) {
    return std::count_if(lines_.begin(), lines_.end(), [&](const EventLine& line) {
      return line.kind == EventKind::kDeviceFault && line.text == text;
    });
  };
  On(MessageFrom{2, Facts{"NVIDIA H200", "580.95", "mlx5_0:1", {}}});
  On(MessageFrom{1, Facts{"NVIDIA H200", "580.95", "", {"gpu 0: hot"}}});
  On(MessageFrom{1, Facts{"NVIDIA H200", "580.95", "", {"gpu 0: XID 79", "gpu 0: hot"}}});
  EXPECT_EQ(said("pod-1: gpu 0: hot"), 1);
  EXPECT_EQ(said("pod-1: gpu 0: XID 79"), 1);
  const std::vector<WorkerFacts>& facts = coordinator_->report().facts;
  ASSERT_EQ(facts.size(), 2u);
  EXPECT_EQ(facts[0].pod, "pod-1");
  EXPECT_EQ(facts[0].facts.device_faults.size(), 2u);
  EXPECT_EQ(facts[1].facts.nic, "mlx5_0:1");
  On(MessageFrom{1, Facts{"NVIDIA H200", "580.95", "", {}}});
  On(MessageFrom{1, Facts{"NVIDIA H200", "580.95", "", {"gpu 0: hot"}}});
  EXPECT_EQ(said("pod-1: gpu 0: hot"), 2) << "it was over in between";
}

TEST_F(CoordinatorTest, EventsCarryTheirKindWhateverTheirText) {
  Make(2, 3, 3);
  Form({1, 2, 3});
  Commit(1, 0.1);
  const auto kind_of_last = [&] { return lines_.empty() ? EventKind::kOther : lines_.back().kind; };
  EXPECT_EQ(kind_of_last(), EventKind::kGenerationFormed);
  On(MessageFrom{1, Leave{"generation 2 failed (is silent)"}});
  EXPECT_EQ(kind_of_last(), EventKind::kWorkerLeaving);
  On(MessageFrom{2, Down{Id(2), "exit", 1, "paused: 1 leaves by plan"}});
  EXPECT_EQ(kind_of_last(), EventKind::kWorkerFailed);
  Pass(milliseconds(5));
  Answer(1, 1);
  Answer(3, 1);
  EXPECT_EQ(kind_of_last(), EventKind::kPaused);
  std::erase(alive_, ConnectionId{3});
  Pass(seconds(1));
  EXPECT_EQ(kind_of_last(), EventKind::kWorkerSilent);
}

TEST_F(CoordinatorTest, AFormedGenerationNamesItsWorkersAndTheTimeSinceTheLoss) {
  Make(2, 3, 3);
  Form({1, 2, 3});
  EXPECT_EQ(lines_.back().kind, EventKind::kGenerationFormed);
  EXPECT_EQ(lines_.back().workers.size(), 3u);
  EXPECT_FALSE(lines_.back().recovery.has_value()) << "no member was lost before the first";
  Commit(1, 0.1);
  On(MessageFrom{2, Down{Id(2), "exit", 137, "killed"}});
  EXPECT_EQ(lines_.back().kind, EventKind::kWorkerFailed);
  EXPECT_EQ(lines_.back().pod, "pod-2");
  EXPECT_EQ(lines_.back().evidence, "exit");
  const Time lost = now_;
  Pass(milliseconds(5));
  Answer(1, 1);
  Answer(3, 1);
  ASSERT_EQ(lines_.back().kind, EventKind::kGenerationFormed);
  EXPECT_EQ(lines_.back().workers, (std::vector<std::string>{"pod-1", "pod-3"}));
  EXPECT_EQ(lines_.back().start_step, 1);
  ASSERT_TRUE(lines_.back().recovery.has_value());
  EXPECT_EQ(*lines_.back().recovery, now_ - lost);
}

TEST_F(CoordinatorTest, FormsBelowTargetAfterTheLastCall) {
  Make(1, 3, 3);
  Join(1);
  Pass(milliseconds(499));
  EXPECT_FALSE(Last<Prepare>(1).has_value());
  Pass(milliseconds(2));
  EXPECT_TRUE(Last<Prepare>(1).has_value());
}

TEST_F(CoordinatorTest, SteadyStateSendsNothing) {
  Make(2, 2, 2);
  Form({1, 2});
  sent_.clear();
  Progress progress;
  progress.records.push_back({});
  progress.records[0].step = 1;
  progress.transport = "shm";
  On(MessageFrom{1, progress});
  Pass(seconds(30));
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(coordinator_->report().step, 1);
  EXPECT_EQ(coordinator_->report().transport, "shm");
}

// Of steps that are done again after all copies were lost, and of those up to a checkpoint, which a trainer
// repeats from it, none count.
TEST_F(CoordinatorTest, KeepsTheSamplesOfAStepOnce) {
  options_.known_checkpoint = 3;
  Make(2, 2, 2);
  Form({1, 2});
  const auto report = [&](int64_t first, int64_t last) {
    Progress progress;
    for (int64_t step = first; step <= last; ++step)
      progress.records.push_back({.step = step, .samples = 8, .seconds = 0.5});
    On(MessageFrom{1, progress});
    return coordinator_->report().kept_samples;
  };
  EXPECT_EQ(report(1, 3), 0);
  EXPECT_EQ(report(4, 6), 24);
  EXPECT_EQ(report(4, 5), 24);
  EXPECT_EQ(report(6, 7), 32);
}

TEST_F(CoordinatorTest, ADeathFormsAGenerationOfTheSurvivors) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  On(MessageFrom{2, Down{Id(2), "mutex", 137, ""}});
  Pass(milliseconds(2));
  const auto prepare = Last<Prepare>(1);
  ASSERT_TRUE(prepare.has_value());
  EXPECT_EQ(prepare->urgency, Urgency::kAbort);
  Answer(1, 11);
  Answer(3, 10);
  const auto next = Last<NewGeneration>(3);
  EXPECT_EQ(next->start_step, 10);
  EXPECT_EQ(next->sources, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(next->members[1].id, Id(3));
  EXPECT_EQ(coordinator_->report().worker_failures, 1);
  EXPECT_EQ(coordinator_->report().last_failure->evidence, "mutex");
  // Its exit code arrives later; its id never returns.
  On(MessageFrom{2, rendezvous::Join{Id(2), "x"}});
  EXPECT_EQ(Last<Evict>(2)->member, Id(2));
}

TEST_F(CoordinatorTest, AReconnectWithinTheWindowInterruptsNothing) {
  Make(1, 2, 2);
  Form({1, 2});
  sent_.clear();
  On(AgentDisconnected{2});
  On(AgentConnected{9, {"default/job", "pod-2", "agent-2", ""}});
  On(MessageFrom{9, rendezvous::Join{Id(2), "x"}});
  Pass(milliseconds(100));
  EXPECT_FALSE(Last<Prepare>(1).has_value());
  EXPECT_TRUE(Last<NewGeneration>(9).has_value());  // repeated: it may have been lost
}

TEST_F(CoordinatorTest, TheOthersContinueWithoutAnUnresponsiveMemberBeforeItIsReportedSilent) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  Commit(1, 0.1);
  sent_.clear();
  std::erase(alive_, ConnectionId{2});  // its node is cut off
  Pass(milliseconds(600));
  EXPECT_FALSE(Last<Prepare>(1).has_value());
  Pass(milliseconds(250));
  Answer(1, 10);
  Answer(3, 10);
  EXPECT_EQ(Last<NewGeneration>(3)->members.size(), 2u);
  EXPECT_EQ(coordinator_->report().last_failure->evidence, "silence");
  // A pause of this length does not replace its pod.
  EXPECT_TRUE(coordinator_->report().silent_pods.empty());
  Pass(seconds(3));
  EXPECT_EQ(coordinator_->report().silent_pods, std::vector<std::string>{"pod-2"});
}

TEST_F(CoordinatorTest, TheUnresponsiveLimitDependsOnTheStepTime) {
  for (const double step_seconds : {0.0, 0.1, 1.0, 60.0}) {  // 0: none was committed yet
    SCOPED_TRACE(step_seconds);
    sent_.clear();
    alive_.clear();
    Make(1, 2, 2);
    Form({1, 2});
    if (step_seconds > 0) Commit(1, step_seconds);
    std::erase(alive_, ConnectionId{2});
    const Time since = now_;
    sent_.clear();
    while (!Last<Prepare>(1).has_value() && now_ - since < seconds(5)) Pass(milliseconds(10));
    const double limit = step_seconds == 0 ? 3 : std::clamp(2 * step_seconds, 0.7, 3.0);
    EXPECT_NEAR(ToSeconds(now_ - since), limit, 0.15);
  }
}

TEST_F(CoordinatorTest, CommittedStepsProveThatAnUnresponsiveMemberLives) {
  Make(1, 2, 2);
  Form({1, 2});
  sent_.clear();
  std::erase(alive_, ConnectionId{2});  // its agent is starved; its trainer runs
  for (int step = 0; step < 20; ++step) {
    Commit(1, 0.1);
    Pass(milliseconds(100));
  }
  EXPECT_FALSE(Last<Prepare>(1).has_value());
  Pass(milliseconds(500));  // now no steps commit
  EXPECT_TRUE(Last<Prepare>(1).has_value());
}

TEST_F(CoordinatorTest, AStandbyThatHoldsStateTakesPartWhenAllMembersAreLost) {
  Make(1, 2, 2);
  Form({1, 2});
  On(SetLimits{1, 1, 1});
  Pass(milliseconds(60));
  Answer(1, 10);
  Answer(2, 10);
  ASSERT_EQ(Last<NewGeneration>(1)->members.size(), 1u);
  sent_.clear();
  On(RequestStop{});
  Pass(milliseconds(60));
  ASSERT_TRUE(Last<Prepare>(1).has_value());
  EXPECT_FALSE(Last<Prepare>(2).has_value());
  On(MessageFrom{1, Down{Id(1), "mutex", 137, ""}});
  Pass(milliseconds(5));
  ASSERT_EQ(coordinator_->report().phase, GangPhase::kStopping);
  Answer(2, 10);
  const auto next = Last<NewGeneration>(2);
  ASSERT_TRUE(next.has_value());
  EXPECT_TRUE(next->stop);
  EXPECT_EQ(next->start_step, 10);
}

TEST_F(CoordinatorTest, HolderGraceStartsWithTheFirstHolderThatConnects) {
  options_.resumed = true;
  options_.known_step = 40;
  Make(1, 2, 2);
  Pass(seconds(20));  // meanwhile DNS still led to the old coordinator
  Join(1);
  Pass(seconds(2));
  EXPECT_FALSE(Last<Prepare>(1).has_value());
  Join(2);
  Pass(seconds(1));
  Answer(1, 40);
  Answer(2, 41);
  const auto next = Last<NewGeneration>(1);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->members.size(), 2u);
}

// The name server led a holder to the old coordinator for long. Meanwhile a restarted trainer has joined.
TEST_F(CoordinatorTest, ANewCoordinatorWaitsLongerForAHolderThanForTheOthers) {
  for (const bool holder_returns : {true, false}) {
    SCOPED_TRACE(holder_returns);
    alive_.clear();
    sent_.clear();
    options_.resumed = true;
    options_.known_step = 40;
    options_.known_checkpoint = 20;
    Make(1, 2, 2);
    Join(1);
    Pass(seconds(5));
    Answer(1, -1);
    EXPECT_FALSE(Last<NewGeneration>(1).has_value());
    Pass(seconds(15));
    EXPECT_FALSE(Last<NewGeneration>(1).has_value());
    Join(2);  // the holder, or a new worker in its place
    Pass(milliseconds(10));
    Answer(1, -1);
    Answer(2, holder_returns ? 40 : -1);
    if (!holder_returns) {  // they are asked for their checkpoints
      Answer(1, -1);
      Answer(2, -1);
    }
    const auto next = Last<NewGeneration>(1);
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->start_step, holder_returns ? 40 : -1);
  }
}

TEST_F(CoordinatorTest, ADeathDuringABoundaryPrepareAbortsIt) {
  Make(1, 2, 4);
  Form({1, 2});
  Join(3);
  Pass(milliseconds(50));
  const auto boundary = Last<Prepare>(1);
  EXPECT_EQ(boundary->urgency, Urgency::kBoundary);
  On(MessageFrom{2, Down{Id(2), "mutex", 137, ""}});
  Pass(milliseconds(2));
  const auto abort = Last<Prepare>(1);
  EXPECT_EQ(abort->urgency, Urgency::kAbort);
  EXPECT_GT(abort->generation, boundary->generation);
}

TEST_F(CoordinatorTest, BelowMinPausesAndResumesFromMemory) {
  Make(2, 2, 2);
  Form({1, 2});
  On(MessageFrom{2, Down{Id(2), "mutex", 0, ""}});
  Pass(milliseconds(2));
  Answer(1, 20);
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kPaused);
  EXPECT_EQ(coordinator_->report().live_pods, std::vector<std::string>{"pod-1"});
  On(AgentDisconnected{2});
  Join(3);
  Pass(milliseconds(100));
  Answer(1, 20);
  Answer(3, -1);
  EXPECT_EQ(Last<NewGeneration>(3)->start_step, 20);
  EXPECT_EQ(Last<NewGeneration>(3)->sources, std::vector<int32_t>{0});
}

TEST_F(CoordinatorTest, TrainingWaitsForAFetchOnlyWithTooFewHolders) {
  Make(2, 2, 3);
  Form({1, 2});
  EXPECT_TRUE(Last<NewGeneration>(1)->fetch_first);  // no member has the state
  const auto join = [&](ConnectionId c) {
    Join(c);
    Pass(milliseconds(100));
  };
  join(3);
  for (const ConnectionId c : {1, 2}) Answer(c, 5);
  Answer(3, -1);
  ASSERT_EQ(Last<NewGeneration>(3)->members.size(), 3u);
  EXPECT_FALSE(Last<NewGeneration>(3)->fetch_first);  // the two others train meanwhile
  EXPECT_EQ(Last<NewGeneration>(3)->params_hash, 5u);
  // Two holders are lost: the last one is below min and does not train alone.
  for (const ConnectionId c : {2, 3}) {
    std::erase(alive_, c);
    On(MessageFrom{c, Down{Id(c), "mutex", 137, ""}});
  }
  Pass(milliseconds(100));
  Answer(1, 7);
  join(4);
  Answer(1, 7);
  Answer(4, -1);
  ASSERT_EQ(Last<NewGeneration>(4)->members.size(), 2u);
  EXPECT_EQ(Last<NewGeneration>(4)->sources, std::vector<int32_t>{0});
  EXPECT_TRUE(Last<NewGeneration>(4)->fetch_first);
}

TEST_F(CoordinatorTest, TheLastHolderThatLeavesIsFetchedFromFirst) {
  Make(1, 2, 2);
  Form({1, 2});
  On(MessageFrom{1, Leave{"drain"}});
  Pass(milliseconds(100));
  Answer(1, 5);
  Answer(2, -1);  // it was still fetching
  const auto next = Last<NewGeneration>(2);
  EXPECT_EQ(next->members.size(), 2u);
  EXPECT_EQ(next->sources, std::vector<int32_t>{0});
  EXPECT_TRUE(next->fetch_first);
}

TEST_F(CoordinatorTest, AStopWaitsForTheCheckpoint) {
  Make(1, 2, 2);
  Form({1, 2});
  On(RequestStop{});
  Pass(milliseconds(5));
  EXPECT_TRUE(Last<Prepare>(1)->stop);
  Answer(1, 5);
  Answer(2, 5);
  EXPECT_TRUE(Last<NewGeneration>(1)->stop);
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kStopping);
  EXPECT_FALSE(Last<Exit>(1).has_value());
  Done done;
  done.step = 5;
  On(MessageFrom{1, done});
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kStopped);
  EXPECT_EQ(Last<Exit>(2)->code, 0);
}

TEST_F(CoordinatorTest, AJobWithoutCheckpointsReportsNone) {
  for (const bool finished : {true, false}) {
    Make(1, 2, 2);
    Form({1, 2});
    if (!finished) {
      On(RequestStop{});
      Pass(milliseconds(5));
      Answer(1, 5);
      Answer(2, 5);
    }
    On(MessageFrom{1, Done{finished, 5, 0, 0, {}, "", "", false}});
    EXPECT_EQ(coordinator_->report().phase, finished ? GangPhase::kFinished : GangPhase::kStopped);
    EXPECT_EQ(coordinator_->report().checkpoint_step, -1);
    EXPECT_EQ(Last<Exit>(2)->finished, finished) << "the agents leave a note of it";
  }
}

TEST_F(CoordinatorTest, AFailedCheckpointIsReportedUntilOneIsWritten) {
  Make(1, 2, 2);
  Form({1, 2});
  Progress failed;
  failed.checkpoint_failure = "write x: no space left";
  On(MessageFrom{1, failed});
  EXPECT_EQ(coordinator_->report().checkpoint_failure, "write x: no space left");
  On(MessageFrom{1, Progress{}});
  EXPECT_EQ(coordinator_->report().checkpoint_failure, "write x: no space left");
  Progress written;
  written.checkpoint_step = 20;
  On(MessageFrom{1, written});
  EXPECT_EQ(coordinator_->report().checkpoint_failure, "");
}

TEST_F(CoordinatorTest, WhatATrainerDoesBeforeItJoinsIsANote) {
  Make(2, 2, 2);
  Join(1);
  On(AgentConnected{2, {"default/job", "pod-2", "agent-2", ""}});
  Progress progress;
  progress.records.resize(1);
  progress.note = "hashing the data, 3 %";
  On(MessageFrom{2, progress});
  ASSERT_EQ(progress_.size(), 1U);
  EXPECT_TRUE(progress_[0].records.empty());
  EXPECT_EQ(progress_[0].note, "hashing the data, 3 %");
  Join(2);
  Pass(seconds(1));
  for (const ConnectionId c : {1, 2}) Answer(c, -1);
  progress_.clear();
  On(AgentConnected{3, {"default/job", "pod-3", "agent-3", ""}});
  On(MessageFrom{3, progress});
  EXPECT_TRUE(progress_.empty()) << "the others train";
}

// An agent repeats it to the next coordinator right after its Join.
TEST_F(CoordinatorTest, ACheckpointOfTheTimeWithoutACoordinatorIsTheFloor) {
  options_.known_checkpoint = 5;
  Make(1, 1, 1);
  Join(1);
  Progress progress;
  progress.checkpoint_step = 7;
  On(MessageFrom{1, progress});
  EXPECT_EQ(coordinator_->report().checkpoint_step, 7);
  progress.checkpoint_step = 6;
  On(MessageFrom{1, progress});
  EXPECT_EQ(coordinator_->report().checkpoint_step, 7);
  Pass(seconds(1));
  Answer(1, -1);
  EXPECT_EQ(Last<NewGeneration>(1).value().checkpoint_floor, 7);
}

TEST_F(CoordinatorTest, AnEventNamesADamagedCheckpointOnce) {
  Make(1, 2, 2);
  Form({1, 2});
  Progress progress;
  progress.damaged_checkpoint = "/ckpt/step-50: chunk 3 has another hash";
  On(MessageFrom{1, progress});
  On(MessageFrom{1, progress});
  EXPECT_EQ(std::ranges::count(lines_,
                               "pod-1: skipped a damaged checkpoint: "
                               "/ckpt/step-50: chunk 3 has another hash",
                               &EventLine::text),
            1);
}

TEST_F(CoordinatorTest, ALeaverExitsWhenTheOthersHaveContinued) {
  Make(1, 2, 2);
  Form({1, 2});
  On(MessageFrom{1, Leave{"drain"}});
  Pass(milliseconds(5));
  EXPECT_EQ(Last<Prepare>(2)->urgency, Urgency::kBoundary);
  EXPECT_FALSE(Last<Exit>(1).has_value());
  Answer(1, 5);
  Answer(2, 5);
  EXPECT_EQ(Last<NewGeneration>(2)->members.size(), 1u);
  EXPECT_EQ(Last<Exit>(1)->reason, "left by plan");
  EXPECT_EQ(coordinator_->report().worker_failures, 0);
}

TEST_F(CoordinatorTest, AMemberThatDoesNotAnswerPrepareIsEvicted) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  On(MessageFrom{3, Down{Id(3), "mutex", 0, ""}});
  Pass(milliseconds(2));
  Answer(1, 5);
  Pass(seconds(10));
  EXPECT_EQ(Last<Evict>(2)->member, Id(2));
  EXPECT_EQ(Last<NewGeneration>(1)->members.size(), 1u);
}

TEST_F(CoordinatorTest, AFatalOfAMemberEndsTheJobWithItsCode) {
  Make(1, 2, 2);
  Form({1, 2});
  On(MessageFrom{1, Fatal{64, "no space", Id(1), true}});
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kFailed);
  EXPECT_EQ(Last<Exit>(2)->code, 64);
  Join(3);
  EXPECT_EQ(Last<Exit>(3)->code, 64);
}

TEST_F(CoordinatorTest, GenerationsLostWithoutAStepAreCounted) {
  Make(1, 2, 2);
  Form({1, 2});
  for (int i = 1; i <= 3; ++i) {
    On(MessageFrom{2, Down{"agent-2." + std::to_string(i), "mutex", 137, ""}});
    Pass(milliseconds(2));
    Answer(1, 0);
    EXPECT_EQ(coordinator_->report().failures_without_progress, i);
    On(MessageFrom{2, rendezvous::Join{"agent-2." + std::to_string(i + 1), "x"}});
    Pass(milliseconds(60));
    Answer(1, 0);
    MemberStatus status;
    status.generation = Last<Prepare>(2)->generation;
    status.member = "agent-2." + std::to_string(i + 1);
    On(MessageFrom{2, status});
    ASSERT_EQ(Last<NewGeneration>(1)->members.size(), 2u);
  }
}

// Pods of two slots: connections 2p and 2p + 1 are those of pod p.
class SlotsTest : public CoordinatorTest {
 protected:
  void JoinSlot(ConnectionId c, const std::string& node = "") {
    alive_.push_back(c);
    Hello hello = {"default/job", "pod-" + std::to_string(c / 2), "agent-" + std::to_string(c), ""};
    hello.slot = static_cast<int32_t>(c % 2);
    hello.node = node;
    On(AgentConnected{c, hello});
    On(MessageFrom{c, rendezvous::Join{Id(c), "x"}});
  }
  std::vector<std::string> MembersSeenBy(ConnectionId c) {
    std::vector<std::string> ids;
    if (const auto next = Last<NewGeneration>(c))
      for (const Member& member : next->members) ids.push_back(member.id);
    return ids;
  }
};

TEST_F(SlotsTest, EverySlotIsAMemberAndAPodIsLiveWhenAllOfThemAre) {
  options_.slots = 2;
  Make(2, 4, 4);
  for (const ConnectionId c : {4, 2, 3, 5}) JoinSlot(c);
  Pass(seconds(1));
  for (const ConnectionId c : {2, 3, 4, 5}) Answer(c, -1);
  // The ranks of a pod are adjacent, in order of slots; pods are in order of joining.
  EXPECT_EQ(MembersSeenBy(2), (std::vector<std::string>{Id(4), Id(5), Id(2), Id(3)}));
  EXPECT_EQ(coordinator_->report().live_pods, (std::vector<std::string>{"pod-2", "pod-1"}));

  On(MessageFrom{3, Down{Id(3), "mutex", 137, ""}});
  Pass(milliseconds(10));
  for (const ConnectionId c : {2, 4, 5}) Answer(c, 0);
  EXPECT_EQ(coordinator_->report().generation & 0xffffffff, 2U);
  EXPECT_EQ(coordinator_->report().live_pods, std::vector<std::string>{"pod-2"}) << "half of pod-1 is gone";
}

TEST_F(SlotsTest, ANewAgentReplacesOnlyTheAgentOfItsSlot) {
  options_.slots = 2;
  Make(2, 2, 2);
  JoinSlot(2);
  JoinSlot(3);
  for (const ConnectionId c : {2, 3}) Answer(c, -1);
  ASSERT_EQ(coordinator_->report().phase, GangPhase::kActive);
  Hello again = {"default/job", "pod-1", "agent-again", ""};
  again.slot = 1;
  On(AgentConnected{9, again});
  EXPECT_EQ(coordinator_->report().worker_failures, 1);
  Pass(milliseconds(10));
  EXPECT_EQ(coordinator_->report().last_failure->pod, "pod-1");
  EXPECT_TRUE(Last<Prepare>(2).has_value()) << "slot 0 is still there";
}

TEST_F(SlotsTest, RanksOfANodeAreAdjacent) {
  Make(4, 4, 4);
  JoinSlot(2, "node-a");
  JoinSlot(4, "node-b");
  JoinSlot(6, "node-a");
  JoinSlot(8, "node-b");
  for (const ConnectionId c : {2, 4, 6, 8}) Answer(c, -1);
  EXPECT_EQ(MembersSeenBy(2), (std::vector<std::string>{Id(2), Id(6), Id(4), Id(8)}));
}

// Two edges of the ring leave a domain: as many as there are domains.
TEST_F(SlotsTest, RanksOfADomainAreAdjacent) {
  options_.domain_of = [](const std::string& node) {
    return node == "node-a" || node == "node-c" ? "x" : "y";
  };
  Make(6, 6, 6);
  JoinSlot(2, "node-a");
  JoinSlot(4, "node-b");
  JoinSlot(6, "node-c");
  JoinSlot(8, "node-d");
  JoinSlot(10, "node-a");
  JoinSlot(12, "node-b");
  for (const ConnectionId c : {2, 4, 6, 8, 10, 12}) Answer(c, -1);
  EXPECT_EQ(MembersSeenBy(2), (std::vector<std::string>{Id(2), Id(10), Id(6), Id(4), Id(12), Id(8)}));
}

}  // namespace
}  // namespace ringmaster::rendezvous
