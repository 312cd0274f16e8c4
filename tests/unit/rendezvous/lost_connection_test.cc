// SPDX-License-Identifier: Apache-2.0

// Lost connections, failed operations, and a coordinator that was suspended.
#include "tests/unit/rendezvous/coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

// Its agent cannot connect for longer than the gather window.
TEST_F(CoordinatorTest, AResetInterruptsNothingWhileStepsCommit) {
  Make(1, 2, 2);
  Form({1, 2});
  Commit(1, 0.1);
  sent_.clear();
  On(AgentDisconnected{2});
  std::erase(alive_, ConnectionId{2});
  for (int step = 0; step < 25; ++step) {
    Commit(1, 0.1);
    Pass(milliseconds(100));
  }
  EXPECT_FALSE(Last<Prepare>(1).has_value());
  EXPECT_EQ(coordinator_->report().live_pods.size(), 2u);
  alive_.push_back(9);
  On(AgentConnected{9, {"default/job", "pod-2", "agent-2", ""}});
  On(MessageFrom{9, rendezvous::Join{Id(2), "x"}});
  Pass(seconds(1));
  EXPECT_FALSE(Last<Prepare>(1).has_value());
  EXPECT_EQ(coordinator_->report().worker_failures, 0);
}

TEST_F(CoordinatorTest, AStepMayBeLongerThanAReset) {
  Make(1, 2, 2);
  Form({1, 2});
  Commit(1, 0.3);
  sent_.clear();
  On(AgentDisconnected{2});
  std::erase(alive_, ConnectionId{2});
  Pass(milliseconds(600));  // no step commits meanwhile
  alive_.push_back(9);
  On(AgentConnected{9, {"default/job", "pod-2", "agent-2", ""}});
  On(MessageFrom{9, rendezvous::Join{Id(2), "x"}});
  Pass(seconds(1));
  EXPECT_FALSE(Last<Prepare>(1).has_value());
}

TEST_F(CoordinatorTest, ALostConnectionIsALossWhenNoStepCommitsOrWhenItLasts) {
  for (const bool steps_commit : {false, true}) {
    SCOPED_TRACE(steps_commit);
    alive_.clear();
    Make(1, 2, 2);
    Form({1, 2});
    Commit(1, 0.1);
    sent_.clear();
    On(AgentDisconnected{2});
    std::erase(alive_, ConnectionId{2});
    const Time since = now_;
    while (!Last<Prepare>(1).has_value() && now_ - since < seconds(5)) {
      if (steps_commit) Commit(1, 0.1);
      Pass(milliseconds(10));
    }
    EXPECT_NEAR(ToSeconds(now_ - since), steps_commit ? 3.0 : 0.7, 0.05);
    EXPECT_EQ(coordinator_->report().last_failure->evidence, "eof");
  }
}

// A dead worker: its peers cannot finish the step. Both orders of the events.
TEST_F(CoordinatorTest, AFailedOperationShowsThatALostConnectionIsADeath) {
  for (const bool connection_first : {true, false}) {
    SCOPED_TRACE(connection_first);
    alive_.clear();
    Make(1, 3, 3);
    Form({1, 2, 3});
    Commit(1, 0.1);
    const OperationFailed failed{Last<NewGeneration>(1)->generation, Id(1), "rank 1 is gone"};
    sent_.clear();
    if (connection_first) On(AgentDisconnected{2});
    On(MessageFrom{1, failed});
    if (!connection_first) On(AgentDisconnected{2});
    Pass(milliseconds(2));
    ASSERT_TRUE(Last<Prepare>(3).has_value());
    EXPECT_EQ(Last<Prepare>(3)->urgency, Urgency::kAbort);
    Answer(1, 1);
    Answer(3, 1);
    EXPECT_EQ(Last<NewGeneration>(3)->members.size(), 2u);
  }
}

TEST_F(CoordinatorTest, TheEndOfAPodIsALossAtOnce) {
  Make(1, 2, 2);
  Form({1, 2});
  sent_.clear();
  On(PodEnded{"pod-2"});
  Pass(milliseconds(2));
  EXPECT_TRUE(Last<Prepare>(1).has_value());
  On(AgentDisconnected{2});
  EXPECT_EQ(coordinator_->report().worker_failures, 1);
}

// The only holder of the state is on its way back, connected but not yet joined, when everyone else has left.
TEST_F(CoordinatorTest, ALeaverThatComesBackIsNotReleasedBeforeItIsAsked) {
  Make(1, 1, 2);
  Form({1});
  Commit(1, 0.1);
  On(AgentDisconnected{1});
  std::erase(alive_, ConnectionId{1});
  Pass(seconds(1));
  Join(2);
  On(MessageFrom{2, Leave{""}});
  On(AgentConnected{9, {"default/job", "pod-1", "agent-1", ""}});
  On(MessageFrom{9, Leave{""}});
  alive_.push_back(9);
  for (int i = 0; i < 10 && !Last<Exit>(2).has_value(); ++i) {
    Pass(seconds(1));
    if (Last<Prepare>(2).has_value()) Answer(2, -1);
  }
  ASSERT_TRUE(Last<Exit>(2).has_value());
  EXPECT_FALSE(Last<Exit>(9).has_value());
  On(MessageFrom{9, rendezvous::Join{Id(1), "x"}});
  Pass(seconds(1));
  ASSERT_TRUE(Last<Prepare>(9).has_value());
  MemberStatus status;
  status.generation = Last<Prepare>(9)->generation;
  status.member = Id(1);
  status.has_state = true;
  status.step = 1;
  On(MessageFrom{9, status});
  ASSERT_TRUE(Last<NewGeneration>(9).has_value());
  EXPECT_TRUE(Last<NewGeneration>(9)->stop);  // it writes a checkpoint
}

TEST_F(CoordinatorTest, AFailedOperationThatNoLossExplainsIsTriedAgain) {
  Make(1, 2, 2);
  Form({1, 2});
  const auto formed = Last<NewGeneration>(1);
  sent_.clear();
  On(MessageFrom{2, OperationFailed{formed->generation, Id(2), "rank 0 made no progress in 60.0 s"}});
  Pass(seconds(9));
  EXPECT_FALSE(Last<Prepare>(1).has_value());
  Pass(milliseconds(1100));
  Answer(1, 4);
  Answer(2, 4);
  const auto next = Last<NewGeneration>(1);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->members, formed->members);
  EXPECT_EQ(next->start_step, 4);
  EXPECT_EQ(coordinator_->report().worker_failures, 0);
  // A late report about the generation before changes nothing.
  sent_.clear();
  On(MessageFrom{1, OperationFailed{formed->generation, Id(1), "rank 1 made no progress in 60.0 s"}});
  Pass(seconds(20));
  EXPECT_FALSE(Last<Prepare>(1).has_value());
}

TEST_F(CoordinatorTest, RepeatedFailedOperationsCountAsNoProgress) {
  Make(1, 2, 2);
  Form({1, 2});
  for (int i = 1; i <= 3; ++i) {
    On(MessageFrom{2, OperationFailed{Last<NewGeneration>(2)->generation, Id(2), "rank 0 is gone"}});
    Pass(seconds(11));
    Answer(1, 0);
    Answer(2, 0);
    EXPECT_EQ(coordinator_->report().failures_without_progress, i);
  }
  EXPECT_EQ(coordinator_->report().last_failure->message, "rank 0 is gone");
}

// SIGSTOP of this process in the middle of a membership change: the answers wait in its sockets, and its
// timers fire first.
TEST_F(CoordinatorTest, ASuspensionOfTheCoordinatorEvictsNoMember) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  On(MessageFrom{3, Down{Id(3), "mutex", 137, ""}});
  Pass(milliseconds(2));
  ASSERT_TRUE(Last<Prepare>(1).has_value());
  now_ += seconds(70);
  On(TimePassed{});
  Answer(1, 5);
  Answer(2, 5);
  EXPECT_FALSE(Last<Evict>(1).has_value());
  EXPECT_EQ(Last<NewGeneration>(1)->members.size(), 2u);
  EXPECT_EQ(Last<NewGeneration>(1)->start_step, 5);
}

// What an agent sent has reached this machine, but a busy coordinator has not read it.
TEST_F(CoordinatorTest, MessagesThatWaitToBeReadAreNoSilence) {
  Make(1, 2, 2);
  Form({1, 2});
  Commit(1, 0.1);
  sent_.clear();
  std::erase(alive_, ConnectionId{2});
  for (int i = 0; i < 50; ++i) {
    arrived_[2] = now_;
    Pass(milliseconds(100));
  }
  EXPECT_FALSE(Last<Prepare>(1).has_value());
  EXPECT_TRUE(coordinator_->report().silent_pods.empty());
  Pass(milliseconds(900));  // now nothing arrives any more
  EXPECT_TRUE(Last<Prepare>(1).has_value());
}

// A membership is encoded once, however many members it has.
TEST_F(CoordinatorTest, AMembershipIsOneMessageToAllMembers) {
  Make(3, 3, 3);
  for (const ConnectionId c : {1, 2, 3}) Join(c);
  Pass(seconds(1));
  for (const ConnectionId c : {1, 2}) Answer(c, -1);
  const auto prepare = Last<Prepare>(3);
  MemberStatus status;
  status.generation = prepare->generation;
  status.member = Id(3);
  coordinator_->On(MessageFrom{3, status}, now_);
  size_t memberships = 0;
  for (const CoordinatorOutput& output : coordinator_->Take()) {
    const auto* send = std::get_if<SendTo>(&output);
    if (send == nullptr || !std::holds_alternative<NewGeneration>(*send->message)) continue;
    ++memberships;
    EXPECT_EQ(send->connections.size(), 3u);
  }
  EXPECT_EQ(memberships, 1u);
}

TEST_F(CoordinatorTest, AnAgentCannotTakeThePlaceOfAnother) {
  Make(1, 2, 2);
  Form({1, 2});
  On(AgentConnected{9, {"default/job", "pod-9", "agent-2", ""}});
  Commit(2, 0.1);
  Pass(seconds(1));
  EXPECT_EQ(coordinator_->report().live_pods, (std::vector<std::string>{"pod-1", "pod-2"}));
  EXPECT_FALSE(Last<Welcome>(9).has_value());
}

}  // namespace
}  // namespace ringmaster::rendezvous
