// SPDX-License-Identifier: Apache-2.0

// A job whose trainers are programs ends when the programs have ended: both sides of the protocol.

#include <algorithm>
#include <chrono>

#include "rendezvous/member.h"
#include "tests/unit/rendezvous/coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

using std::chrono::hours;

Done Finished() { return Done{true, 5, 0, 0, {}, "", "", false}; }

class AfterLoopTest : public CoordinatorTest {
 protected:
  AfterLoopTest() { options_.await_programs = true; }
  void Train(const std::vector<ConnectionId>& members) {
    Make(1, static_cast<int32_t>(members.size()), static_cast<int32_t>(members.size()));
    Form(members);
  }
  // The steps are done.
  void Finish(const std::vector<ConnectionId>& members) {
    Train(members);
    for (const ConnectionId c : members) On(MessageFrom{c, Finished()});
    for (const ConnectionId c : members) {
      ASSERT_TRUE(Last<Exit>(c)->after_program);
      ASSERT_TRUE(Last<Exit>(c)->finished);
    }
  }
  void Reset() {
    sent_.clear();
    alive_.clear();
  }
  void End(ConnectionId c, int32_t code, const std::string& message = "") {
    On(MessageFrom{c, Down{Id(c), "exit", code, message}});
  }
  GangPhase phase() { return coordinator_->report().phase; }
};

TEST_F(AfterLoopTest, TheJobEndsWhenAllProgramsHave) {
  Finish({1, 2});
  Pass(hours(5));
  EXPECT_EQ(phase(), GangPhase::kActive) << "an export takes as long as it takes";
  EXPECT_FALSE(coordinator_->report().done.has_value());
  End(1, 0);
  EXPECT_EQ(phase(), GangPhase::kActive);
  EXPECT_TRUE(Last<Exit>(1)->after_program) << "its agent waits";
  End(2, 0);
  EXPECT_EQ(phase(), GangPhase::kFinished);
  EXPECT_TRUE(coordinator_->report().done->finished);
  for (const ConnectionId c : {1, 2}) EXPECT_EQ(*Last<Exit>(c), (Exit{0, "finished", true}));
}

TEST_F(AfterLoopTest, AfterAnotherExitCodeAllProgramsStartAgain) {
  Finish({1, 2});
  End(1, 0);
  On(AgentConnected{3, {"default/job", "pod-3", "agent-3", ""}});
  On(MessageFrom{3, rendezvous::Join{Id(3), "x"}});
  End(2, 3, "OSError: no space left");
  EXPECT_EQ(phase(), GangPhase::kForming);
  EXPECT_EQ(coordinator_->report().last_failure,
            (FailureRecord{"pod-2", "exit", 3, "OSError: no space left"}));
  EXPECT_FALSE(coordinator_->report().done.has_value());
  for (const ConnectionId c : {1, 2}) EXPECT_EQ(Last<Evict>(c)->member, Id(c));
  EXPECT_FALSE(Last<Evict>(3).has_value()) << "it connects again, and joins";
  for (const ConnectionId c : {1, 2}) {
    On(MessageFrom{c, rendezvous::Join{"agent-" + std::to_string(c) + ".2", "x"}});
  }
  Pass(seconds(1));
  EXPECT_TRUE(Last<Prepare>(1).has_value() && Last<Prepare>(2).has_value());
}

TEST_F(AfterLoopTest, AnExceptionAfterTheLoopIsReportedInFull) {
  Finish({1, 2});
  On(MessageFrom{1, Fatal{64, "train.py:9: OSError: no space left", Id(1), true}});
  EXPECT_EQ(phase(), GangPhase::kFailed);
  EXPECT_EQ(coordinator_->report().failure, "pod-1: after the last step: train.py:9: OSError: no space left");
  EXPECT_FALSE(Last<Exit>(2)->finished);
}

TEST_F(AfterLoopTest, AProgramThatWasKilledMattersOnlyIfItWasTheFirst) {
  for (const bool first : {false, true}) {
    for (const bool pod : {false, true}) {
      Reset();
      Finish({1, 2});
      const ConnectionId victim = first ? 1 : 2;
      if (pod) {
        std::erase(alive_, victim);
        On(AgentDisconnected{victim});
        Pass(seconds(100));
        EXPECT_EQ(phase(), GangPhase::kActive) << "its agent may connect again";
        On(PodEnded{"pod-" + std::to_string(victim)});
      } else {
        End(victim, 137);
      }
      EXPECT_EQ(phase(), first ? GangPhase::kForming : GangPhase::kActive);
      if (first) continue;
      End(1, 0);
      EXPECT_EQ(phase(), GangPhase::kFinished);
    }
  }
}

TEST_F(AfterLoopTest, AConnectionThatIsLostMeanwhileChangesNothing) {
  Finish({1, 2});
  On(AgentDisconnected{2});
  Pass(seconds(100));
  End(1, 0);
  EXPECT_EQ(phase(), GangPhase::kActive);
  On(AgentConnected{9, {"default/job", "pod-2", "agent-2", ""}});
  On(MessageFrom{9, rendezvous::Join{Id(2), "x"}});
  On(MessageFrom{9, Finished()});
  EXPECT_TRUE(Last<Exit>(9)->after_program);
  On(MessageFrom{9, Down{Id(2), "exit", 0, ""}});
  EXPECT_EQ(phase(), GangPhase::kFinished);
}

TEST_F(AfterLoopTest, AProgramWhoseAgentDoesNotComeBackIsLost) {
  Finish({1, 2});
  On(AgentDisconnected{2});
  End(1, 0);
  EXPECT_EQ(phase(), GangPhase::kActive);
  Pass(seconds(301));
  EXPECT_EQ(phase(), GangPhase::kFinished) << "the first rank has done its work";
}

TEST_F(AfterLoopTest, NewLimitsWaitForNoBoundary) {
  Finish({1, 2});
  On(SetLimits{1, 1, 1});
  EXPECT_GT(coordinator_->next_wakeup(), now_ + milliseconds(1));
  Pass(seconds(100));
  EXPECT_GT(coordinator_->next_wakeup(), now_) << "a time in the past would wake the server again and again";
}

TEST_F(AfterLoopTest, ALossBeforeAnyProgramKnowsOfTheEndIsAMembershipChange) {
  Train({1, 2});
  On(AgentDisconnected{1});
  On(PodEnded{"pod-1"});
  On(MessageFrom{2, Finished()});
  EXPECT_FALSE(Last<Exit>(2).has_value());
  Pass(milliseconds(10));
  Answer(2, 5);
  EXPECT_EQ(Last<NewGeneration>(2)->members.size(), 1u);
  On(MessageFrom{2, Finished()});
  EXPECT_TRUE(Last<Exit>(2)->after_program);
  End(2, 0);
  EXPECT_EQ(phase(), GangPhase::kFinished);
}

TEST_F(AfterLoopTest, ACoordinatorThatTakesOverWaitsForThePrograms) {
  options_.resumed = true;
  Make(1, 2, 2);
  Join(1);
  On(MessageFrom{1, Finished()});
  EXPECT_EQ(phase(), GangPhase::kActive);
  On(MessageFrom{1, Down{Id(1), "exit", 0, ""}});
  Pass(seconds(30));
  EXPECT_EQ(phase(), GangPhase::kActive) << "the other one may not have found the new coordinator yet";
  Join(2);
  On(MessageFrom{2, Finished()});
  Pass(hours(1));
  EXPECT_EQ(phase(), GangPhase::kActive);
  End(2, 0);
  EXPECT_EQ(phase(), GangPhase::kFinished);
}

TEST_F(AfterLoopTest, AStopEndsTheJobAtOnce) {
  Finish({1, 2});
  On(RequestStop{});
  EXPECT_EQ(phase(), GangPhase::kStopped);
  EXPECT_FALSE(Last<Exit>(1)->finished);
}

TEST_F(AfterLoopTest, NativeTrainersEndAtOnce) {
  options_.await_programs = false;
  Train({1, 2});
  On(MessageFrom{1, Finished()});
  EXPECT_EQ(phase(), GangPhase::kFinished);
  EXPECT_FALSE(Last<Exit>(1)->after_program);
}

// ---- the agent

const Exit kAfterProgram = {0, "finished", true, true};

class ProgramOfAgentTest : public testing::Test {
 protected:
  void Train(Duration limit) {
    MemberOptions options;
    options.hello = {"default/job", "pod-0", "agent", "s"};
    options.after_loop = limit;
    core_.emplace(options);
    for (const MemberEvent& event :
         {MemberEvent{Started{}}, MemberEvent{Connected{}}, MemberEvent{FromTrainer{Join{"", "addr"}}}})
      On(event);
    On(FromTrainer{Finished()});
    EXPECT_TRUE(Has(On(FromCoordinator{kAfterProgram}), SendTrainer{kAfterProgram}));
  }
  std::vector<MemberCommand> On(const MemberEvent& event) {
    core_->On(event, now_);
    return core_->Take();
  }
  static bool Has(const std::vector<MemberCommand>& commands, const MemberCommand& wanted) {
    return std::find(commands.begin(), commands.end(), wanted) != commands.end();
  }
  template <class T>
  static const T* Find(const std::vector<MemberCommand>& commands) {
    for (const MemberCommand& command : commands)
      if (const T* found = std::get_if<T>(&command)) return found;
    return nullptr;
  }
  std::optional<MemberCore> core_;
  Time now_{};
};

TEST_F(ProgramOfAgentTest, WaitsForTheProgramAndForTheAnswer) {
  Train(seconds(1800));
  now_ += seconds(1700);
  EXPECT_EQ(Find<KillTrainer>(On(Tick{})), nullptr);
  const auto ended = On(TrainerReaped{0});
  EXPECT_TRUE(Has(ended, SendCoordinator{Down{"agent.1", "exit", 0, ""}}));
  EXPECT_EQ(Find<ExitAgent>(ended), nullptr) << "the programs of other agents may run";
  EXPECT_TRUE(Has(On(FromCoordinator{Exit{0, "finished", true}}), ExitAgent{0, "finished", true}));
}

TEST_F(ProgramOfAgentTest, ItsExitCodeIsThatOfTheAgent) {
  Train(seconds(1800));
  EXPECT_TRUE(Has(On(TrainerReaped{3}), SendCoordinator{Down{"agent.1", "exit", 3, ""}}));
  now_ += hours(1);
  const auto ended = On(Tick{});
  ASSERT_NE(Find<ExitAgent>(ended), nullptr) << "the coordinator does not answer";
  EXPECT_EQ(Find<ExitAgent>(ended)->code, 3);
  EXPECT_FALSE(Find<ExitAgent>(ended)->finished);
}

TEST_F(ProgramOfAgentTest, WaitsWhileTheProgramsOfOthersMayRun) {
  Train(seconds(1800));
  On(TrainerReaped{0});
  now_ += seconds(1800);
  EXPECT_EQ(Find<ExitAgent>(On(Tick{})), nullptr) << "rank 0 may export as long";
}

TEST_F(ProgramOfAgentTest, AStopAfterTheLoopIsNotTheEndOfTheWork) {
  for (const bool ends : {true, false}) {
    Train(seconds(1800));
    if (ends) On(TrainerReaped{0});
    const auto ended = On(FromCoordinator{Exit{0, "stopped on request", false}});
    ASSERT_NE(Find<ExitAgent>(ended), nullptr);
    EXPECT_FALSE(Find<ExitAgent>(ended)->finished);
  }
}

TEST_F(ProgramOfAgentTest, AProgramThatDoesNotEndIsKilled) {
  Train(seconds(1800));
  now_ += seconds(1800);
  const auto late = On(Tick{});
  EXPECT_NE(Find<KillTrainer>(late), nullptr);
  ASSERT_NE(Find<SendCoordinator>(late), nullptr);
  const auto& down = std::get<Down>(Find<SendCoordinator>(late)->message);
  EXPECT_EQ(down.evidence, "hang");
  EXPECT_NE(down.message.find("1800 s after the last step"), std::string::npos) << down.message;
}

TEST_F(ProgramOfAgentTest, WithoutALimitItMayRunForever) {
  Train(Duration::zero());
  now_ += hours(1000);
  EXPECT_EQ(Find<KillTrainer>(On(Tick{})), nullptr);
}

TEST_F(ProgramOfAgentTest, RepeatsItsEndOnANewConnection) {
  Train(seconds(1800));
  On(Disconnected{});
  const auto again = On(Connected{});
  EXPECT_TRUE(Has(again, SendCoordinator{Join{"agent.1", "addr"}}));
  EXPECT_TRUE(Has(again, SendCoordinator{Finished()}));
  EXPECT_EQ(Find<SendTrainer>(On(FromCoordinator{kAfterProgram})), nullptr) << "the program knows";
  On(Disconnected{});
  On(TrainerReaped{0});
  const auto ended = On(Connected{});
  const auto done = std::find(ended.begin(), ended.end(), MemberCommand{SendCoordinator{Finished()}});
  EXPECT_NE(std::find(done, ended.end(), MemberCommand{SendCoordinator{Down{"agent.1", "exit", 0, ""}}}),
            ended.end());
}

TEST_F(ProgramOfAgentTest, AJobThatEndsOtherwiseEndsTheProgram) {
  Train(seconds(1800));
  const auto ended = On(FromCoordinator{Exit{1, "another worker failed"}});
  EXPECT_NE(Find<KillTrainer>(ended), nullptr);
  EXPECT_TRUE(Has(ended, ExitAgent{1, "another worker failed", false}));
}

TEST_F(ProgramOfAgentTest, StartsAgainBecauseAProgramFailed) {
  for (const bool runs : {true, false}) {
    Train(seconds(1800));
    if (!runs) On(TrainerReaped{0});
    EXPECT_EQ(Find<StartTrainer>(On(FromCoordinator{Evict{"agent.7", "of another one"}})), nullptr);
    const auto evicted = On(FromCoordinator{Evict{"agent.1", "a program failed"}});
    EXPECT_EQ(Find<KillTrainer>(evicted) != nullptr, runs);
    if (runs) On(TrainerReaped{137});
    now_ += seconds(20);
    const auto again = On(Tick{});
    if (Find<StartTrainer>(evicted) == nullptr) {
      ASSERT_NE(Find<StartTrainer>(again), nullptr);
      EXPECT_EQ(Find<StartTrainer>(again)->member, "agent.2");
    }
    EXPECT_EQ(Find<ExitAgent>(again), nullptr);
    EXPECT_FALSE(Has(On(FromTrainer{Join{"", "addr"}}), SendCoordinator{Finished()}));
    const Exit end = {0, "finished", true};
    EXPECT_TRUE(Has(On(FromCoordinator{end}), SendTrainer{end}));
  }
}

}  // namespace
}  // namespace ringmaster::rendezvous
