// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/program_coordinator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ringmaster::rendezvous {
namespace {

// Agents that carry out orders at once, except that a program ends only when the test says so.
class ProgramCoordinatorTest : public testing::Test {
 protected:
  void Make(int32_t min, int32_t target, int32_t max, uint32_t term = 1, bool resumed = false) {
    options_.job = "default/job";
    options_.min = min;
    options_.target = target;
    options_.max = max;
    options_.term = term;
    options_.resumed = resumed;
    if (!options_.programs) options_.programs.emplace();
    coordinator_.emplace(options_);
    connections_.clear();
    On(TimePassed{});
  }
  void On(const CoordinatorEvent& event) {
    coordinator_->On(event, now_);
    std::vector<ConnectionId> asked;
    for (CoordinatorOutput& output : coordinator_->Take()) {
      if (const auto* send = std::get_if<SendTo>(&output)) {
        for (const ConnectionId c : send->connections) Deliver(c, *send->message);
      }
      if (const auto* ask = std::get_if<AskArrival>(&output)) asked.push_back(ask->connection);
      if (const auto* line = std::get_if<EventLine>(&output)) lines_.push_back(line->text);
    }
    for (const ConnectionId c : asked) On(LastArrival{c, Time::min()});
    for (const int n : std::exchange(to_report_, {})) Report(n);
  }
  void Pass(Duration duration) {
    const Time until = now_ + duration;
    while (coordinator_->next_wakeup() <= until) {
      now_ = std::max(now_, coordinator_->next_wakeup());
      for (const auto& [c, n] : connections_)
        if (!mute_.contains(n)) On(MessageFrom{c, Ping{}});
      On(TimePassed{});
    }
    now_ = until;
  }
  // Agent n of pod-n connects.
  void Connect(int n) {
    const ConnectionId c = ++last_connection_;
    connections_[c] = n;
    On(AgentConnected{c, {"default/job", Pod(n), Agent(n), ""}});
    Report(n);
  }
  void Disconnect(int n) {
    const ConnectionId c = ConnectionOf(n);
    connections_.erase(c);
    On(AgentDisconnected{c});
  }
  void Report(int n) {
    state_[n].address = "10.0.0." + std::to_string(n) + ":" + std::to_string(1000 + starts_);
    if (const ConnectionId c = ConnectionOf(n); c != 0) On(MessageFrom{c, state_[n]});
  }
  void End(int n, int32_t exit_code, const std::string& message = "") {
    ProgramState& state = state_[n];
    state.phase = state.phase == ProgramPhase::kStopping ? ProgramPhase::kIdle : ProgramPhase::kEnded;
    state.exit_code = exit_code;
    state.evidence = "exit";
    state.message = message;
    Report(n);
  }
  void Deliver(ConnectionId c, const Message& message) {
    if (!connections_.contains(c)) return;
    const int n = connections_.at(c);
    if (mute_.contains(n)) return;
    ProgramState& state = state_[n];
    if (const auto* start = std::get_if<StartProgram>(&message)) {
      const auto self = std::find_if(start->members.begin(), start->members.end(),
                                     [&](const Member& member) { return member.id == Agent(n); });
      ASSERT_NE(self, start->members.end());
      ASSERT_GT(start->generation, state.generation);
      state = {ProgramPhase::kRunning, start->generation, static_cast<int32_t>(self - start->members.begin()),
               static_cast<int32_t>(start->members.size())};
      to_report_.insert(n);
      last_start_ = *start;
      ++starts_;
    } else if (const auto* stop = std::get_if<StopProgram>(&message)) {
      if (state.phase == ProgramPhase::kRunning && stop->generation >= state.generation) {
        state.phase = ProgramPhase::kStopping;
        stop_grace_ms_ = stop->grace_ms;
        to_report_.insert(n);
      }
    } else if (const auto* exit = std::get_if<Exit>(&message)) {
      exits_[n] = exit->code;
    }
  }
  ConnectionId ConnectionOf(int n) const {
    for (const auto& [c, of] : connections_)
      if (of == n) return c;
    return 0;
  }
  static std::string Pod(int n) { return "pod-" + std::to_string(n); }
  static std::string Agent(int n) { return "agent-" + std::to_string(n); }
  bool Runs(int n) const { return state_.at(n).phase == ProgramPhase::kRunning; }
  const rendezvous::Report& report() { return coordinator_->report(); }
  void Form(std::initializer_list<int> agents) {
    for (const int n : agents) Connect(n);
    for (const int n : agents) ASSERT_TRUE(Runs(n)) << n;
    ASSERT_EQ(report().phase, GangPhase::kActive);
  }

  CoordinatorOptions options_;
  std::optional<ProgramCoordinator> coordinator_;
  Time now_{seconds(1000)};
  ConnectionId last_connection_ = 0;
  std::map<ConnectionId, int> connections_;
  std::map<int, ProgramState> state_;
  std::map<int, int32_t> exits_;
  std::set<int> mute_;
  std::set<int> to_report_;
  std::vector<std::string> lines_;
  StartProgram last_start_;
  int starts_ = 0;
  int64_t stop_grace_ms_ = -1;
};

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
  Pass(seconds(11));
  EXPECT_TRUE(Runs(0));
  EXPECT_EQ(report().worker_failures, 0);
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
