// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/program_member.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ringmaster::rendezvous {
namespace {

class ProgramMemberTest : public testing::Test {
 protected:
  ProgramMemberTest() {
    options_.hello = {"default/job", "pod-0", "agent", "s"};
    core_.emplace(options_);
    On(program::Started{});
    On(program::Connected{});
  }
  std::vector<program::Command> On(const program::Event& event) {
    core_->On(event, now_);
    return core_->Take();
  }
  std::vector<program::Command> From(Message message) {
    return On(program::FromCoordinator{std::move(message)});
  }
  static bool Has(const std::vector<program::Command>& commands, const program::Command& wanted) {
    return std::find(commands.begin(), commands.end(), wanted) != commands.end();
  }
  template <class T>
  static bool Any(const std::vector<program::Command>& commands) {
    return std::any_of(commands.begin(), commands.end(),
                       [](const auto& c) { return std::holds_alternative<T>(c); });
  }
  static StartProgram Order(Generation generation) {
    return {generation, {{"other", "pod-1", "a:1"}, {"agent", "pod-0", "b:2"}}};
  }
  std::vector<program::Command> Pass(Duration duration) {
    now_ += duration;
    return On(program::Tick{});
  }

  ProgramMemberOptions options_;
  std::optional<ProgramMemberCore> core_;
  Time now_{seconds(100)};
};

TEST_F(ProgramMemberTest, StartsItsRankAndReportsItsEnd) {
  EXPECT_TRUE(Has(From(Order(5)), program::Start{Order(5), 1}));
  EXPECT_EQ(core_->state().phase, ProgramPhase::kRunning);
  On(program::Ended{3, "exit", "ValueError", Duration{0}});
  EXPECT_EQ(core_->state().phase, ProgramPhase::kEnded);
  EXPECT_EQ(core_->state().exit_code, 3);
  now_ += seconds(2);
  On(program::Disconnected{});
  const auto again = On(program::Connected{});
  EXPECT_TRUE(Any<program::Send>(again));
  EXPECT_EQ(core_->state().ended_us, 2'000'000) << "the age grows, so the end keeps its time";
}

// A process in a driver, or at a disk that is gone, survives SIGKILL for as long as the kernel waits.
TEST_F(ProgramMemberTest, AFailureIsReportedBeforeTheLastProcessHasEnded) {
  From(Order(5));
  EXPECT_TRUE(Any<program::Send>(On(program::Failed{{3, "exit", "ValueError", milliseconds(200)}})));
  EXPECT_EQ(core_->state().phase, ProgramPhase::kRunning) << "nothing may start here";
  EXPECT_EQ(core_->state().exit_code, 3);
  EXPECT_EQ(core_->state().message, "ValueError");
  EXPECT_EQ(core_->state().ended_us, 200'000);
  EXPECT_TRUE(Any<program::Send>(On(program::Survived{"pid 77 (cat), state D"})));
  EXPECT_EQ(core_->state().survivors, "pid 77 (cat), state D");
  // The coordinator stops the gang, and wants the next incarnation.
  EXPECT_TRUE(Has(From(StopProgram{5, 3000}), program::Signal{false}));
  EXPECT_FALSE(Any<program::Start>(From(Order(6))));
  EXPECT_EQ(core_->state().phase, ProgramPhase::kStopping);
  EXPECT_EQ(core_->state().evidence, "exit") << "the order came later";
  now_ += seconds(60);
  const auto next = On(program::Ended{3, "exit", "of another process", Duration{0}});
  EXPECT_TRUE(Has(next, program::Start{Order(6), 1}));
  EXPECT_EQ(core_->state().survivors, "");
  EXPECT_EQ(core_->state().evidence, "");
}

TEST_F(ProgramMemberTest, AFailureThatWasReportedStaysOneAfterAnOrder) {
  From(Order(5));
  On(program::Failed{{3, "exit", "ValueError", Duration{0}}});
  now_ += seconds(2);
  From(StopProgram{5, 0});
  On(program::Ended{3, "exit", "later", Duration{0}});
  EXPECT_EQ(core_->state().phase, ProgramPhase::kEnded);
  EXPECT_EQ(core_->state().message, "ValueError");
  EXPECT_EQ(core_->state().ended_us, 2'000'000) << "since it failed";
}

TEST_F(ProgramMemberTest, WhatEndsAfterAnOrderIsNoFailureThoughProcessesAreLeft) {
  From(Order(5));
  From(StopProgram{5, 3000});
  On(program::Failed{{143, "exit", "", Duration{0}}});
  EXPECT_EQ(core_->state().evidence, "");
  On(program::Ended{143, "exit", "", Duration{0}});
  EXPECT_EQ(core_->state().phase, ProgramPhase::kIdle);
}

TEST_F(ProgramMemberTest, AHangIsReportedThoughSigkillDoesNotEndTheProgram) {
  From(Order(5));
  const auto commands = On(program::Hung{"no progress for 30 s"});
  EXPECT_TRUE(Has(commands, program::Signal{true}));
  EXPECT_TRUE(Any<program::Send>(commands));
  EXPECT_EQ(core_->state().evidence, "hang");
  EXPECT_EQ(core_->state().phase, ProgramPhase::kRunning);
  EXPECT_FALSE(Any<program::Signal>(On(program::Hung{"again"})));
}

TEST_F(ProgramMemberTest, CountsTheRanksOfOneIncarnation) {
  From(Order(5));
  EXPECT_TRUE(Any<program::Send>(On(program::Ranks{3, {{2, 0, 1}, {1, 0, 1}}})));
  On(program::Ranks{0, {{2, 0, 1}}});
  EXPECT_EQ(core_->state().ranks, (std::vector<RankCount>{{2, 0, 2}, {1, 0, 1}}));
  On(program::Ended{0, "exit", "", Duration{0}});
  EXPECT_EQ(core_->state().ranks.size(), 2u) << "the coordinator judges after the end";
  From(Order(6));
  EXPECT_TRUE(core_->state().ranks.empty());
}

TEST_F(ProgramMemberTest, CountsTheRanksThatAreOpen) {
  From(Order(5));
  EXPECT_TRUE(Any<program::Send>(On(program::Ranks{2, {}})));
  EXPECT_EQ(core_->state().open_ranks, 2);
  On(program::Ranks{0, {{2, 0, 1}}});
  EXPECT_EQ(core_->state().open_ranks, 1);
  From(Order(6));
  On(program::Ended{0, "exit", "", Duration{0}});
  EXPECT_EQ(core_->state().open_ranks, 0);
}

TEST_F(ProgramMemberTest, TheMembersChangeWhileTheProgramRuns) {
  From(Order(5));
  StartProgram more = Order(5);
  more.version = 2;
  more.members.push_back({"third", "pod-2", "c:3", "", "key", 2});
  const auto commands = From(more);
  EXPECT_TRUE(Has(commands, program::Update{more}));
  EXPECT_FALSE(Any<program::Start>(commands) || Any<program::Signal>(commands));
  EXPECT_EQ(core_->state().version, 2);
  EXPECT_TRUE(From(more).empty()) << "it was repeated";
  StartProgram less = Order(5);
  less.version = 1;
  EXPECT_FALSE(Any<program::Update>(From(less))) << "it is older";
  On(program::Ended{1, "launcher", "", Duration{0}});
  more.version = 3;
  EXPECT_FALSE(Any<program::Update>(From(more))) << "nothing runs";
}

TEST_F(ProgramMemberTest, OldOrdersHaveNoEffect) {
  From(Order(5));
  EXPECT_FALSE(Any<program::Start>(From(Order(5))));
  EXPECT_FALSE(Any<program::Start>(From(Order(4))));
  EXPECT_FALSE(Any<program::Signal>(From(StopProgram{4, 0})));
  EXPECT_EQ(core_->state().phase, ProgramPhase::kRunning);
}

TEST_F(ProgramMemberTest, AStopIsSigtermThenSigkillAndItsEndIsNoFailure) {
  From(Order(5));
  EXPECT_TRUE(Has(From(StopProgram{5, 3000}), program::Signal{false}));
  EXPECT_FALSE(Any<program::Signal>(Pass(milliseconds(2900))));
  EXPECT_TRUE(Has(Pass(milliseconds(100)), program::Signal{true}));
  EXPECT_FALSE(Any<program::Signal>(Pass(seconds(5)))) << "one is enough";
  On(program::Ended{137, "exit", "", Duration{0}});
  EXPECT_EQ(core_->state().phase, ProgramPhase::kIdle);
}

TEST_F(ProgramMemberTest, AStopWithoutGraceKillsAtOnce) {
  From(Order(5));
  From(StopProgram{5, 30'000});
  EXPECT_TRUE(Has(From(StopProgram{5, 0}), program::Signal{true}));
}

TEST_F(ProgramMemberTest, AStartWaitsForTheEndOfTheLastProgram) {
  From(Order(5));
  const auto next = From(Order(6));
  EXPECT_TRUE(Has(next, program::Signal{true}));
  EXPECT_FALSE(Any<program::Start>(next));
  EXPECT_TRUE(Has(On(program::Ended{137, "exit", "", Duration{0}}), program::Start{Order(6), 1}));
}

TEST_F(ProgramMemberTest, AHangIsAFailureWithItsReason) {
  From(Order(5));
  EXPECT_TRUE(Has(On(program::Hung{"no step for 60 s"}), program::Signal{true}));
  On(program::Ended{137, "exit", "", Duration{0}});
  EXPECT_EQ(core_->state().evidence, "hang");
  EXPECT_EQ(core_->state().message, "no step for 60 s");
}

TEST_F(ProgramMemberTest, LosingTheCoordinatorDoesNotDisturbTheProgram) {
  From(Order(5));
  On(program::Disconnected{});
  for (int i = 0; i < 1000; ++i) {
    const auto commands = Pass(seconds(1));
    EXPECT_FALSE(Any<program::Signal>(commands));
    if (Any<program::Connect>(commands)) On(program::Disconnected{});
  }
  EXPECT_EQ(core_->state().phase, ProgramPhase::kRunning);
}

TEST_F(ProgramMemberTest, LeavesByPlanAndWithoutACoordinatorByItself) {
  From(Order(5));
  EXPECT_TRUE(Has(On(program::Terminate{}), program::Send{Leave{"terminated"}}));
  EXPECT_FALSE(Any<program::Signal>(Pass(seconds(1)))) << "the coordinator orders the stop";
  EXPECT_TRUE(Has(From(StopProgram{5, 3000}), program::Signal{false}));
  On(program::Ended{143, "exit", "", Duration{0}});
  EXPECT_TRUE(Has(From(rendezvous::Exit{0, "left by plan"}), program::Exit{0, "left by plan"}));

  core_.emplace(options_);
  On(program::Started{});
  On(program::Connected{});
  From(Order(5));
  On(program::Disconnected{});
  EXPECT_TRUE(Has(On(program::Terminate{}), program::Signal{false}));
  EXPECT_TRUE(Has(On(program::Ended{143, "exit", "", Duration{0}}), program::Exit{143, "terminated"}));
}

TEST_F(ProgramMemberTest, KnowsThatTheJobIsFinished) {
  From(Order(5));
  On(program::Ended{0, "exit", "", Duration{0}});
  EXPECT_TRUE(Has(From(rendezvous::Exit{0, "every program has ended with exit code 0", true}),
                  program::Exit{0, "every program has ended with exit code 0", true}));
}

TEST_F(ProgramMemberTest, ChecksItsPeersWhileNoProgramRuns) {
  const CheckPeers order{7, CheckStep::kConnect, {{"other", "pod-1", "a:1"}, {"agent", "pod-0", "b:2"}}};
  EXPECT_TRUE(Has(From(order), program::Check{order, 1}));
  const PeersChecked result{7, CheckStep::kConnect, {{0, "Connection refused"}}};
  EXPECT_TRUE(Has(On(program::Checked{result}), program::Send{result}));
  EXPECT_TRUE(Any<program::Check>(From(CheckPeers{8, CheckStep::kListen})));
  EXPECT_FALSE(Any<program::Check>(From(CheckPeers{8, CheckStep::kConnect, {{"other", "pod-1", "a:1"}}})))
      << "this agent takes no part";
  From(Order(5));
  EXPECT_FALSE(Any<program::Check>(From(CheckPeers{9, CheckStep::kListen}))) << "its port is in use";
}

TEST_F(ProgramMemberTest, AProgramThatSurvivesSigkillDoesNotKeepTheAgent) {
  From(Order(5));
  From(rendezvous::Exit{75, "its attempt is obsolete"});
  EXPECT_TRUE(Has(Pass(options_.stop_grace), program::Signal{true}));
  EXPECT_TRUE(Has(Pass(options_.exit_limit), program::Exit{75, "its attempt is obsolete"}));
  EXPECT_TRUE(core_->ended());
}

}  // namespace
}  // namespace ringmaster::rendezvous
