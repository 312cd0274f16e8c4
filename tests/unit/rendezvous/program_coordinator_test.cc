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
    Hello hello = {"default/job", Pod(n), Agent(n), ""};
    if (const auto role = roles_.find(n); role != roles_.end()) hello.role = role->second;
    On(AgentConnected{c, hello});
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
      ASSERT_GT(std::pair(start->generation, start->life), std::pair(state.generation, state.life));
      state = {ProgramPhase::kRunning, start->generation, static_cast<int32_t>(self - start->members.begin()),
               static_cast<int32_t>(start->members.size())};
      state.life = start->life;
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
  std::map<int, std::string> roles_;  // of agents that are no workers
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

class LauncherTest : public ProgramCoordinatorTest {
 protected:
  LauncherTest() {
    options_.programs.emplace();
    options_.programs->policy.decider = ProgramPolicy::Decider::kFirst;
    options_.programs->policy.counts_ranks = true;
  }
  void Ran(int n, std::vector<RankCount> ranks) {
    state_[n].ranks = std::move(ranks);
    Report(n);
  }
};

TEST_F(LauncherTest, ItsSuccessCountsWhenEveryRankWasSeen) {
  Make(2, 2, 2);
  Form({0, 1});
  Ran(0, {{2, 0, 1}});
  End(0, 0);
  EXPECT_EQ(report().phase, GangPhase::kActive) << "the report about rank 1 is on its way";
  Ran(1, {{2, 1, 1}});
  EXPECT_EQ(report().phase, GangPhase::kFinished);
}

TEST_F(LauncherTest, ALauncherThatOverlooksALostRankFails) {
  Make(2, 2, 2);
  Form({0, 1});
  Ran(0, {{2, 0, 1}});
  End(0, 0);
  Pass(seconds(1));
  EXPECT_FALSE(report().incident.has_value());
  Pass(seconds(2));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.message,
            "the launcher ended with exit code 0, but rank 1 of 2 was not seen to end with exit code 0");
  EXPECT_EQ(state_[1].phase, ProgramPhase::kStopping);
}

TEST_F(LauncherTest, AFailedRankIsTheCauseThoughTheLauncherEndsWithZero) {
  Make(2, 2, 2);
  Form({0, 1});
  End(0, 0);
  End(1, 137, "rank 1 of 2 was killed by signal 9");
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
}

TEST_F(LauncherTest, ALauncherThatEndsFirstIsAConsequence) {
  Make(2, 2, 2);
  Form({0, 1});
  state_[0].evidence = "launcher";
  state_[0].phase = ProgramPhase::kEnded;
  state_[0].exit_code = 132;  // of Open MPI, and of a crash in machine code
  Report(0);
  End(1, 1, "rank 1 of 2 ended with exit code 1");
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
}

TEST_F(LauncherTest, AllRanksInOneWorkerAreNotWhatTheJobAsksFor) {
  Make(2, 2, 2);
  Form({0, 1});
  Ran(0, {{2, 0, 1}, {2, 1, 1}});
  End(0, 0);
  Pass(seconds(3));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_NE(report().incident->root.message.find("no rank ran on pod-1"), std::string::npos);
}

TEST_F(LauncherTest, EveryRunOfMpiIsCounted) {
  Make(2, 2, 2);
  Form({0, 1});
  // A preparation with one rank, and two runs with two ranks, of which the second lost rank 1.
  Ran(0, {{1, 0, 1}, {2, 0, 2}});
  Ran(1, {{2, 1, 1}});
  End(0, 0);
  Pass(seconds(3));
  EXPECT_TRUE(report().incident.has_value());
}

TEST_F(LauncherTest, MembersGetTheKeysOfTheirIncarnation) {
  Make(2, 2, 2);
  state_[0].key = "a";
  state_[1].key = "b";
  Form({0, 1});
  EXPECT_EQ(last_start_.members[0].key, "a");
  EXPECT_EQ(last_start_.members[1].key, "b");
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

// Workers 0 and 1, chief 10, parameter server 20, evaluator 30.
class RolesTest : public ProgramCoordinatorTest {
 protected:
  RolesTest() {
    ProgramPolicy& policy = options_.programs.emplace().policy;
    policy.workers.restart = ProgramRestart::kAlone;
    policy.roles = {{"chief", 1, ProgramRestart::kGang, true},
                    {"ps", 1, ProgramRestart::kAlone, false},
                    {"evaluator", 1, ProgramRestart::kNever, false}};
    policy.decider = ProgramPolicy::Decider::kRole;
    policy.decider_role = "chief";
    policy.max_restarts = 2;
    policy.backoff_initial = seconds(1);
    policy.ruled_exit_codes = {64};
    roles_ = {{10, "chief"}, {20, "ps"}, {30, "evaluator"}};
  }
  void FormAll() {
    Make(2, 2, 2);
    Form({0, 1, 10, 20, 30});
  }
};

TEST_F(RolesTest, AnIncarnationNeedsEveryRoleAndHasTheWorkersFirst) {
  Make(2, 2, 2);
  for (const int n : {30, 20, 1, 0}) Connect(n);
  Pass(seconds(60));
  EXPECT_EQ(starts_, 0) << "the chief is missing";
  Connect(10);
  ASSERT_EQ(last_start_.members.size(), 5u);
  std::vector<std::string> roles;
  for (const Member& member : last_start_.members) roles.push_back(member.role);
  EXPECT_EQ(roles, (std::vector<std::string>{"", "", "chief", "ps", "evaluator"}));
  EXPECT_EQ(report().live_pods.size(), 5u);
}

TEST_F(RolesTest, AnUnknownRoleIsRefused) {
  FormAll();
  roles_[40] = "launcher";
  Connect(40);
  EXPECT_EQ(report().live_pods.size(), 5u);
  Pass(seconds(100));
  EXPECT_EQ(starts_, 5);
}

TEST_F(RolesTest, ALostProgramStartsAgainAloneAfterItsBackOff) {
  FormAll();
  const Generation generation = report().generation;
  const std::string address = last_start_.members[3].address;
  End(20, 137);
  EXPECT_EQ(starts_, 5) << "the back-off";
  Pass(milliseconds(1100));
  EXPECT_TRUE(Runs(20));
  EXPECT_EQ(starts_, 6);
  EXPECT_EQ(last_start_.members[3].address, address) << "its peers know the old one";
  EXPECT_EQ(state_[20].life, 1);
  End(20, 137);
  Pass(milliseconds(1100));
  EXPECT_FALSE(Runs(20)) << "the back-off has doubled";
  Pass(seconds(1));
  EXPECT_TRUE(Runs(20));
  EXPECT_TRUE(Runs(0) && Runs(1) && Runs(10) && Runs(30));
  EXPECT_EQ(report().generation, generation);
  EXPECT_EQ(report().worker_failures, 2);
  EXPECT_FALSE(report().incident.has_value());
}

TEST_F(RolesTest, AProgramThatFailsTooOftenStopsTheGang) {
  FormAll();
  for (int i = 0; i < 2; ++i) {
    End(1, 1);
    Pass(seconds(5));
    ASSERT_TRUE(Runs(1));
  }
  End(1, 1);
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
}

TEST_F(RolesTest, AnExitCodeWithARuleIsOneOfTheGang) {
  FormAll();
  End(20, 64, "no such file");
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.exit_code, 64);
}

TEST_F(RolesTest, TheGangIsSparedAnEvaluator) {
  FormAll();
  End(30, 1);
  Disconnect(30);
  On(PodEnded{"pod-30"});
  Pass(seconds(60));
  EXPECT_TRUE(Runs(0) && Runs(1) && Runs(10) && Runs(20));
  EXPECT_FALSE(report().incident.has_value());
}

TEST_F(RolesTest, TheChiefDecides) {
  FormAll();
  End(0, 0);
  End(1, 0);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  End(10, 0);
  EXPECT_EQ(report().phase, GangPhase::kFinished);
  EXPECT_EQ(exits_.size(), 5u);
}

TEST_F(RolesTest, AFailedChiefStopsTheGang) {
  FormAll();
  End(20, 137);
  End(10, 137);
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-10");
  for (const int n : {0, 1, 30}) End(n, 143);
  On(AllowRestart{report().incident->generation});
  for (const int n : {0, 1, 10, 20, 30}) EXPECT_TRUE(Runs(n)) << n;
  EXPECT_EQ(state_[20].life, 0);
}

TEST_F(RolesTest, AnOrderToStartAgainThatIsLostIsRepeated) {
  FormAll();
  End(20, 137);
  mute_.insert(20);
  Pass(milliseconds(1100));
  EXPECT_FALSE(Runs(20));
  mute_.clear();
  Disconnect(20);
  Connect(20);
  EXPECT_TRUE(Runs(20));
  EXPECT_EQ(report().worker_failures, 1);
}

TEST_F(RolesTest, AProgramWaitsForItsAgentWithTheNextStart) {
  FormAll();
  End(20, 137);
  Disconnect(20);
  Pass(seconds(2));
  EXPECT_EQ(starts_, 5);
  Connect(20);
  EXPECT_TRUE(Runs(20));
  EXPECT_TRUE(Runs(10));
}

TEST_F(RolesTest, ANewCoordinatorAdoptsLives) {
  FormAll();
  End(20, 137);
  Pass(milliseconds(1100));
  ASSERT_EQ(state_[20].life, 1);
  Make(2, 2, 2, 2, true);
  for (const int n : {0, 1, 10, 20, 30}) Connect(n);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  EXPECT_EQ(starts_, 6);
  End(20, 137);
  Pass(milliseconds(1100));
  EXPECT_EQ(state_[20].life, 2);
}

TEST_F(RolesTest, TheFirstRankMayDecide) {
  options_.programs->policy.decider = ProgramPolicy::Decider::kFirst;
  FormAll();
  End(1, 0);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  End(0, 0);
  EXPECT_EQ(report().phase, GangPhase::kFinished);
}

}  // namespace
}  // namespace ringmaster::rendezvous
