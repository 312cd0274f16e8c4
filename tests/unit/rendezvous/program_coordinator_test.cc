// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/program_coordinator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/unit/rendezvous/program_coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

TEST_F(ProgramCoordinatorTest, RanksFollowThePodsAndEveryIncarnationHasFreshAddresses) {
  Make(3, 3, 3);
  Connect(10);
  Connect(2);
  EXPECT_EQ(starts_, 0) << "one worker is missing";
  Connect(1);
  ASSERT_EQ(last_start_.members.size(), 3u);
  EXPECT_EQ(last_start_.members[0].pod, "pod-1");
  EXPECT_EQ(last_start_.members[1].pod, "pod-2");
  EXPECT_EQ(last_start_.members[2].pod, "pod-10");
  EXPECT_EQ(last_start_.members[0].address, "10.0.0.1:1000");
}

TEST_F(ProgramCoordinatorTest, TheJobIsFinishedWhenEveryRankOfOneIncarnationEndedWithZero) {
  Make(2, 2, 2);
  Form({0, 1});
  End(0, 0);
  EXPECT_EQ(report().phase, GangPhase::kActive) << "rank 1 still runs";
  End(1, 0);
  EXPECT_EQ(report().phase, GangPhase::kFinished);
  EXPECT_EQ(exits_, (std::map<int, int32_t>{{0, 0}, {1, 0}}));
  EXPECT_EQ(finished_, (std::set<int>{0, 1}));
  finished_.clear();
  Connect(1);
  EXPECT_EQ(finished_, (std::set<int>{1})) << "the first order to exit was lost";
}

TEST_F(ProgramCoordinatorTest, AFailureStopsTheOthersAndWaitsUntilItIsAccounted) {
  Make(2, 2, 2);
  Form({0, 1});
  End(1, 137);
  EXPECT_EQ(state_[0].phase, ProgramPhase::kStopping);
  EXPECT_EQ(stop_grace_ms_, 5000);
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
  EXPECT_EQ(report().incident->root.exit_code, 137);
  On(AllowRestart{report().incident->generation});
  EXPECT_EQ(starts_, 2) << "rank 0 still runs";
  End(0, 143);
  EXPECT_EQ(starts_, 4);
  EXPECT_EQ(report().worker_failures, 1) << "the end of rank 0 was ordered";

  End(0, 1);
  Pass(seconds(1));
  End(1, 143);
  Pass(seconds(60));
  EXPECT_EQ(starts_, 4) << "nothing starts before the failure is accounted";
  On(AllowRestart{report().incident->generation});
  EXPECT_EQ(starts_, 6);
}

TEST_F(ProgramCoordinatorTest, SurvivorsOfAFailureGetTheTimeOfAPlannedStopButAtMostFiveSeconds) {
  for (const auto& [by_plan, after_failure] : {std::pair(2, 2), std::pair(5, 5), std::pair(600, 5)}) {
    SCOPED_TRACE(by_plan);
    options_.programs.emplace().stop_grace = seconds(by_plan);
    Make(2, 2, 2);
    Form({0, 1});
    End(1, 137);
    EXPECT_EQ(stop_grace_ms_, after_failure * 1000);
    End(0, 143);
    On(AllowRestart{report().incident->generation});
    ASSERT_TRUE(Runs(0) && Runs(1));
    On(MessageFrom{ConnectionOf(1), Leave{"terminated"}});
    EXPECT_EQ(stop_grace_ms_, by_plan * 1000);
    state_.clear();
  }
}

TEST_F(ProgramCoordinatorTest, ASuccessIsHeldAndAnnulledWhenAnotherRankFails) {
  Make(2, 2, 2);
  Form({0, 1});
  End(0, 0);
  End(1, 139);
  On(AllowRestart{report().incident->generation});
  EXPECT_TRUE(Runs(0) && Runs(1));
  End(1, 0);
  EXPECT_EQ(report().phase, GangPhase::kActive) << "rank 0 succeeded in another incarnation only";
}

TEST_F(ProgramCoordinatorTest, ACrashOutweighsAnExitCodeThatArrivesFirst) {
  Make(3, 3, 3);
  Form({0, 1, 2});
  End(0, 1, "ConnectionResetError");
  End(2, 134);
  End(1, 137);
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
}

TEST_F(ProgramCoordinatorTest, AProgramThatNamesALostPeerIsAConsequence) {
  Make(2, 2, 2);
  Form({0, 1});
  End(0, 1, "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.1]:34155");
  End(1, 1, "ValueError: the data is broken");
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
}

TEST_F(ProgramCoordinatorTest, AnAbortOfAPeerIsAConsequence) {
  Make(2, 2, 2);
  Form({0, 1});
  End(0, 134);
  End(1, 1, "ModuleNotFoundError: No module named 'x'");
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.message, "ModuleNotFoundError: No module named 'x'");
}

// The node of pod-1 was switched off: its peer fails first, and its agent counts as lost later.
TEST_F(ProgramCoordinatorTest, TheFailureOfASurvivorIsNotChargedWhenItsPeerTurnsOutToBeLost) {
  for (const std::string message : {"RuntimeError: Connection closed by peer", "Traceback: something else"}) {
    SCOPED_TRACE(message);
    Make(2, 2, 2);
    Form({0, 1});
    mute_ = {1};
    Pass(seconds(1));
    End(0, 1, message);
    Pass(seconds(1));
    EXPECT_EQ(report().phase, GangPhase::kForming) << "the gang stops, and does not wait for agent 1";
    EXPECT_FALSE(report().last_failure.has_value()) << "agent 1 may be lost, or late";
    Pass(seconds(2));
    EXPECT_FALSE(report().incident.has_value());
    EXPECT_EQ(report().silent_pods, (std::vector<std::string>{"pod-1"}));
    EXPECT_EQ(report().last_failure->pod, "pod-1");
    mute_.clear();
    state_.clear();
  }
}

TEST_F(ProgramCoordinatorTest, TheFailureOfAProgramIsChargedWhenItsPeersAreHeardAgain) {
  Make(2, 2, 2);
  Form({0, 1});
  mute_ = {1};
  Pass(seconds(1));
  End(0, 1, "ValueError: the data is broken");
  Pass(seconds(1));
  EXPECT_FALSE(report().incident.has_value());
  mute_.clear();
  Pass(milliseconds(500));
  End(1, 143);
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.message, "ValueError: the data is broken");
}

// A machine with much to do: the victim ends first, and the cause long after, when the gang is being stopped.
TEST_F(ProgramCoordinatorTest, ACauseThatArrivesAfterItsConsequenceIsStillTheCause) {
  for (const int late_ms : {50, 500, 900, 3000}) {
    SCOPED_TRACE(late_ms);
    Make(3, 3, 3);
    Form({0, 1, 2});
    End(0, 75, "peer is lost: rank 2");
    Pass(milliseconds(late_ms));
    EXPECT_FALSE(report().incident.has_value()) << "a consequence is not published while a rank runs";
    // It ended by itself: its agent reports that before it reads the order to stop.
    state_[2].phase = ProgramPhase::kRunning;
    End(2, 1, "its disk is full");
    Pass(milliseconds(200));
    if (!report().incident) End(1, 143);
    ASSERT_TRUE(report().incident.has_value());
    EXPECT_EQ(report().incident->root.message, "its disk is full");
    state_.clear();
  }
}

TEST_F(ProgramCoordinatorTest, WhatMayBeAConsequenceIsPublishedWhenTheGangHasStopped) {
  Make(3, 3, 3);
  Form({0, 1, 2});
  End(0, 75, "peer is lost: rank 2");
  Pass(seconds(3));
  EXPECT_EQ(state_[1].phase, ProgramPhase::kStopping);
  EXPECT_FALSE(report().incident.has_value());
  End(1, 143);
  EXPECT_FALSE(report().incident.has_value());
  End(2, 143);
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-0");
  EXPECT_FALSE(Runs(0)) << "it is not accounted";
  On(AllowRestart{report().incident->generation});
  EXPECT_TRUE(Runs(0) && Runs(1) && Runs(2));
}

// The last rank has ended as well, but its agent is cut off when it does: nothing is left to do.
TEST_F(ProgramCoordinatorTest, AnAgentThatIsNotHeardWhenAllOthersAreDoneMayBeLate) {
  for (const bool reset : {false, true}) {
    SCOPED_TRACE(reset);
    Make(2, 2, 2);
    Form({0, 1});
    mute_ = {1};
    Pass(seconds(1));
    if (reset) Disconnect(1);
    End(0, 0);
    Pass(seconds(20));
    EXPECT_EQ(report().phase, GangPhase::kActive) << "the whole job would run again";
    EXPECT_TRUE(report().silent_pods.empty()) << "its pod would be replaced";
    mute_.clear();
    state_[1].phase = ProgramPhase::kEnded;
    if (reset) Connect(1);
    End(1, 0);
    EXPECT_EQ(report().phase, GangPhase::kFinished);
    state_.clear();
  }
}

TEST_F(ProgramCoordinatorTest, AnAgentThatIsNotHeardForLongIsLostThoughAllOthersAreDone) {
  Make(2, 2, 2);
  Form({0, 1});
  mute_ = {1};
  Pass(seconds(1));
  End(0, 0);
  Pass(options_.programs->end_limit + seconds(2));
  EXPECT_EQ(report().silent_pods, (std::vector<std::string>{"pod-1"}));
  EXPECT_EQ(report().last_failure->pod, "pod-1");
}

TEST_F(ProgramCoordinatorTest, APodThatHasEndedIsLostThoughAllOthersAreDone) {
  Make(2, 2, 2);
  Form({0, 1});
  Disconnect(1);
  End(0, 0);
  On(PodEnded{"pod-1"});
  EXPECT_EQ(report().last_failure->pod, "pod-1");
}

TEST_F(ProgramCoordinatorTest, AFailureIsJudgedSoonAfterTheLastPeerIsHeard) {
  Make(2, 2, 2);
  Form({0, 1});
  mute_ = {1};
  End(0, 1, "ValueError: the data is broken");
  Pass(milliseconds(110));
  EXPECT_FALSE(report().incident.has_value());
  mute_.clear();
  Report(1);
  EndStopped();
  EXPECT_TRUE(report().incident.has_value());
}

TEST_F(ProgramCoordinatorTest, APingDoesNotPutOffWhatIsDue) {
  Make(1, 2, 2);
  Connect(0);
  Pass(options_.programs->last_call - milliseconds(1));
  now_ += milliseconds(2);
  On(MessageFrom{ConnectionOf(0), Ping{}});
  EXPECT_LE(coordinator_->next_wakeup(), now_) << "it waits no longer for a second worker";
  On(TimePassed{});
  EXPECT_TRUE(Runs(0));
}

TEST_F(ProgramCoordinatorTest, ALostAgentNeedsNoPermission) {
  Make(2, 2, 2);
  Form({0, 1});
  Disconnect(1);
  Pass(seconds(1));
  EXPECT_EQ(report().phase, GangPhase::kActive) << "it may be a reset";
  On(PodEnded{"pod-1"});
  EXPECT_EQ(state_[0].phase, ProgramPhase::kStopping);
  EXPECT_FALSE(report().incident.has_value());
  End(0, 143);
  state_[1] = {};
  Connect(1);
  EXPECT_TRUE(Runs(0) && Runs(1));
}

TEST_F(ProgramCoordinatorTest, AResetConnectionDisturbsNobody) {
  Make(2, 2, 2);
  Form({0, 1});
  Disconnect(1);
  Pass(seconds(1));
  Connect(1);
  Pass(seconds(10));
  EXPECT_TRUE(Runs(0) && Runs(1));
  EXPECT_EQ(starts_, 2);
}

TEST_F(ProgramCoordinatorTest, ASilentAgentIsLeftOutAndItsOldProgramStoppedWhenItReturns) {
  Make(1, 2, 2);
  Form({0, 1});
  mute_.insert(1);
  Pass(seconds(4));
  EXPECT_EQ(report().silent_pods, (std::vector<std::string>{"pod-1"}));
  End(0, 143);
  Pass(seconds(11));
  EXPECT_TRUE(Runs(0));
  EXPECT_EQ(report().generation, state_[0].generation);
  mute_.clear();
  Pass(seconds(1));
  EXPECT_EQ(state_[1].phase, ProgramPhase::kStopping) << "its incarnation is over";
}

TEST_F(ProgramCoordinatorTest, ANewCoordinatorAdoptsWhatRuns) {
  Make(2, 2, 2);
  Form({0, 1});
  Make(2, 2, 2, 2, true);
  Connect(0);
  EXPECT_TRUE(Runs(0));
  Connect(1);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  EXPECT_EQ(starts_, 2) << "the programs noticed nothing";
  End(1, 137);
  ASSERT_TRUE(report().incident.has_value());
  End(0, 143);
  On(AllowRestart{report().incident->generation});
  EXPECT_EQ(starts_, 4);
  EXPECT_EQ(last_start_.generation >> 32, 2u);
}

// Their ends were reported to no coordinator, or it ended before that was recorded.
// Its predecessor had sent an order to stop to one of the agents.
TEST_F(ProgramCoordinatorTest, WhatAnEarlierCoordinatorHasBegunToStopIsStopped) {
  Make(2, 2, 2);
  Form({0, 1});
  Make(2, 2, 2, 2, true);
  state_[1].phase = ProgramPhase::kStopping;
  Connect(0);
  Connect(1);
  End(1, 143);
  EXPECT_EQ(state_[0].phase, ProgramPhase::kStopping);
  End(0, 143);
  EXPECT_TRUE(Runs(0) && Runs(1));
}

TEST_F(ProgramCoordinatorTest, ProgramsThatEndedDuringAnAbsenceAreNotRunAgain) {
  Make(2, 2, 2);
  Form({0, 1});
  Make(1, 1, 2, 2, true);  // the job got smaller meanwhile
  End(0, 0);
  End(1, 0);
  Connect(0);
  EXPECT_EQ(report().phase, GangPhase::kForming);
  Connect(1);
  EXPECT_EQ(report().phase, GangPhase::kFinished);
  EXPECT_EQ(starts_, 2);
  EXPECT_EQ(finished_, (std::set<int>{0, 1}));
}

TEST_F(ProgramCoordinatorTest, AFailureDuringAnAbsenceIsAnIncident) {
  Make(2, 2, 2);
  Form({0, 1});
  Make(2, 2, 2, 2, true);
  End(0, 3);
  End(1, 1, "Connection reset by peer");
  Connect(0);
  Connect(1);
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.exit_code, 3);
  EXPECT_EQ(starts_, 2) << "it is not accounted yet";
  On(AllowRestart{report().incident->generation});
  EXPECT_EQ(starts_, 4);
}

// Its programs were stopped by order: what comes next is a new incarnation.
TEST_F(ProgramCoordinatorTest, AnIncarnationThatWasStoppedIsNotAdopted) {
  Make(2, 2, 2);
  Form({0, 1});
  On(RequestStop{});
  End(0, 0);
  Make(2, 2, 2, 2, true);
  End(1, 0);
  Connect(0);
  Connect(1);
  Pass(seconds(21));
  EXPECT_EQ(report().phase, GangPhase::kActive);
  EXPECT_EQ(starts_, 4);
}

TEST_F(ProgramCoordinatorTest, AnIncarnationThatCannotBeAdoptedIsStopped) {
  Make(2, 2, 2);
  Form({0, 1});
  Make(2, 2, 2, 2, true);
  Connect(0);
  Pass(seconds(19));
  EXPECT_TRUE(Runs(0));
  Pass(seconds(2));
  EXPECT_EQ(state_[0].phase, ProgramPhase::kStopping);
}

TEST_F(ProgramCoordinatorTest, GrowsByPlanAndNotForEveryJoiner) {
  Make(1, 1, 4);
  Form({0});
  Connect(1);
  Pass(seconds(30));
  EXPECT_TRUE(Runs(0)) << "the incarnation is young";
  Pass(seconds(25));
  Connect(2);
  Pass(seconds(9));
  EXPECT_TRUE(Runs(0)) << "more may come";
  Pass(seconds(2));
  EXPECT_EQ(state_[0].phase, ProgramPhase::kStopping);
  EXPECT_EQ(stop_grace_ms_, 30'000);
  End(0, 0);
  EXPECT_EQ(last_start_.members.size(), 3u);
  EXPECT_EQ(report().worker_failures, 0);
}

TEST_F(ProgramCoordinatorTest, ALeavingWorkerIsReleasedWhenItsProgramHasEnded) {
  Make(1, 2, 2);
  Form({0, 1});
  On(MessageFrom{ConnectionOf(1), Leave{"terminated"}});
  EXPECT_EQ(stop_grace_ms_, 30'000);
  EXPECT_TRUE(exits_.empty());
  End(1, 143);
  End(0, 143);
  EXPECT_EQ(exits_, (std::map<int, int32_t>{{1, 0}}));
  EXPECT_TRUE(finished_.empty());
  Pass(seconds(11));
  EXPECT_TRUE(Runs(0));
  EXPECT_EQ(report().worker_failures, 0);
}

TEST_F(ProgramCoordinatorTest, ALeavingWorkerIsReleasedAgainOnANewConnection) {
  Make(2, 2, 2);
  Form({0, 1});
  On(MessageFrom{ConnectionOf(1), Leave{"terminated"}});
  EndStopped();
  ASSERT_TRUE(exits_.contains(1));
  exits_.clear();  // lost
  Disconnect(1);
  Connect(1);
  On(MessageFrom{ConnectionOf(1), Leave{"terminated"}});
  EXPECT_TRUE(exits_.contains(1));
}

TEST_F(ProgramCoordinatorTest, AStopEndsWhenAllProgramsHaveEnded) {
  Make(2, 2, 2);
  Form({0, 1});
  On(RequestStop{});
  EXPECT_EQ(report().phase, GangPhase::kStopping);
  End(0, 0);
  EXPECT_EQ(report().phase, GangPhase::kStopping);
  End(1, 1);
  EXPECT_EQ(report().phase, GangPhase::kStopped);
}

TEST_F(ProgramCoordinatorTest, CountsFailuresWithoutAStepInBetween) {
  Make(1, 1, 1);
  Form({0});
  for (int i = 1; i <= 3; ++i) {
    End(0, 137);
    EXPECT_EQ(report().failures_without_progress, i);
    On(AllowRestart{report().incident->generation});
  }
  Progress progress;
  progress.records.push_back({.step = 5, .generation = state_[0].generation});
  On(MessageFrom{ConnectionOf(0), progress});
  EXPECT_EQ(report().step, 5);
  End(0, 137);
  EXPECT_EQ(report().failures_without_progress, 0);
}

TEST_F(ProgramCoordinatorTest, TheTimeLeftIsThatOfTheProgramThatRuns) {
  Make(1, 1, 1);
  Form({0});
  Progress progress;
  progress.seconds_left = 120;
  On(MessageFrom{ConnectionOf(0), progress});
  EXPECT_EQ(report().seconds_left, 120);
  progress.seconds_left.reset();
  On(MessageFrom{ConnectionOf(0), progress});
  EXPECT_EQ(report().seconds_left, 120) << "a report without it changes nothing";
  End(0, 137);
  EXPECT_EQ(report().seconds_left, 0);
  On(AllowRestart{report().incident->generation});
  EXPECT_TRUE(Runs(0));
  EXPECT_EQ(report().seconds_left, 0);
  progress.seconds_left = 60;
  On(MessageFrom{ConnectionOf(0), progress});
  EXPECT_EQ(report().seconds_left, 60);
  End(0, 0);
  EXPECT_EQ(report().seconds_left, 0) << "the job has ended";
}

// A process that the program has started is in a driver or at a disk that is gone: SIGKILL does not end it.
TEST_F(ProgramCoordinatorTest, AFailureCountsBeforeTheLastProcessHasEnded) {
  Make(1, 2, 2);
  Form({0, 1});
  const auto fail = [&](int n, const std::string& survivors) {
    state_[n].exit_code = 3;
    state_[n].evidence = "exit";
    state_[n].message = "ValueError";
    state_[n].survivors = survivors;
    Report(n);
  };
  fail(1, "");
  Pass(options_.programs->gather_window);
  ASSERT_TRUE(report().incident);
  EXPECT_EQ(report().incident->root.pod, "pod-1");
  EXPECT_EQ(report().incident->root.message, "ValueError");
  fail(1, "pid 77 (cat), state D");
  EXPECT_TRUE(std::any_of(lines_.begin(), lines_.end(), [](const std::string& line) {
    return line.starts_with("pod-1: SIGKILL does not end a part of its program, pid 77 (cat), state D");
  }));
  End(0, 143);
  On(AllowRestart{report().incident->generation});
  Pass(options_.programs->stop_grace + options_.programs->stop_margin + seconds(1));
  EXPECT_EQ(report().silent_pods, std::vector<std::string>{"pod-1"}) << "the controller replaces it";
  Pass(options_.programs->last_call);
  EXPECT_TRUE(Runs(0)) << "the others start without it";
  EXPECT_EQ(last_start_.members.size(), 1u) << "nothing starts where the process is";
}

TEST_F(ProgramCoordinatorTest, ASuccessorSeesAFailureWhoseProcessesHaveNotEnded) {
  Make(2, 2, 2);
  Form({0, 1});
  state_[1].exit_code = 3;
  state_[1].evidence = "exit";
  Make(2, 2, 2, 2, true);
  Connect(0);
  Connect(1);
  Pass(options_.programs->gather_window);
  ASSERT_TRUE(report().incident);
  EXPECT_EQ(report().incident->root.pod, "pod-1");
}

TEST_F(ProgramCoordinatorTest, AProgramThatDoesNotStopKeepsItsPodOut) {
  Make(1, 2, 2);
  Form({0, 1});
  End(0, 137);
  On(AllowRestart{report().incident->generation});
  Pass(seconds(16));
  EXPECT_EQ(report().silent_pods, (std::vector<std::string>{"pod-1"}));
  Pass(seconds(11));
  EXPECT_TRUE(Runs(0));
  EXPECT_EQ(state_[0].world, 1);
}

}  // namespace
}  // namespace ringmaster::rendezvous
