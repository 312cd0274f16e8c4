// SPDX-License-Identifier: Apache-2.0

// Messages of members that were left out, and what a coordinator does not know of its predecessor.
#include <gtest/gtest.h>

#include "rendezvous/member.h"
#include "tests/unit/rendezvous/coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

class PredecessorTest : public CoordinatorTest {
 protected:
  // Member 2 dies after step 2. Member 1 may take two steps of 20 s to answer.
  void ExpectTimeToAnswerAfter20SecondSteps() {
    On(MessageFrom{2, Down{Id(2), "mutex", 0, ""}});
    Pass(seconds(39));
    EXPECT_FALSE(Last<Evict>(1).has_value());
    Answer(1, 2);
    EXPECT_EQ(Last<NewGeneration>(1)->start_step, 2);
  }
};

// Its agent was cut off together with it, and repeats the Fatal when it connects again.
TEST_F(PredecessorTest, ALateFatalOfAMemberThatWasLeftOutIsNoFaultOfTheJob) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  Commit(1, 0.1);
  On(AgentDisconnected{3});
  std::erase(alive_, ConnectionId{3});
  Pass(seconds(4));
  Answer(1, 1);
  Answer(2, 1);
  ASSERT_EQ(Last<NewGeneration>(1)->members.size(), 2u);
  for (int i = 0; i < 50; ++i) {
    Commit(1, 0.1);
    Pass(milliseconds(100));
  }
  On(AgentConnected{9, {"default/job", "pod-3", "agent-3", ""}});
  On(MessageFrom{9, Fatal{64, "EndpointConnectionError: could not connect", Id(3), true}});
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kActive);
  EXPECT_EQ(Last<Evict>(9)->member, Id(3)) << "its agent may start another trainer";
}

// A program that leaves its loop without a word has died before its agent knows the exit code.
TEST_F(PredecessorTest, AFatalThatFollowsTheDeathOfItsMemberEndsTheJob) {
  Make(1, 2, 2);
  Form({1, 2});
  Commit(1, 0.1);
  On(MessageFrom{1, Down{Id(1), "mutex", 0, ""}});
  On(MessageFrom{2, Down{Id(2), "mutex", 0, ""}});
  On(MessageFrom{1, Fatal{64, "the program ended with exit code 0 before the job did", Id(1), true}});
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kFailed);
}

// The predecessor may have left it out. If all workers say so, the job is at fault.
TEST_F(PredecessorTest, AFatalOfAMemberOfThePredecessorIsJudgedWithTheOtherWorkers) {
  options_.resumed = true;
  Make(1, 2, 2);
  On(AgentConnected{9, {"default/job", "pod-9", "agent-9", ""}});
  On(MessageFrom{9, Fatal{64, "could not connect", Id(9), true}});
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kForming);
  Join(1);
  EXPECT_TRUE(Last<Evict>(9)->refused);
  Pass(seconds(4));
  Answer(1, 5);
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kActive);
}

TEST_F(PredecessorTest, AFatalOfAllMembersOfThePredecessorFailsTheJob) {
  options_.resumed = true;
  Make(1, 2, 2);
  for (const ConnectionId c : {8, 9}) {
    const std::string name = std::to_string(c);
    On(AgentConnected{c, {"default/job", "pod-" + name, "agent-" + name, ""}});
    On(MessageFrom{c, Fatal{64, "the gradient is not finite", Id(c), true}});
  }
  Pass(seconds(4));
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kFailed);
}

// A stop is under way when the leader changes: the workers may need longer than 3 s to find the new one.
TEST_F(PredecessorTest, AStopWaitsForTheMembersOfThePredecessor) {
  options_.resumed = true;
  options_.known_step = 1000;
  options_.known_checkpoint = 500;
  Make(2, 2, 2);
  On(RequestStop{});
  Pass(seconds(30));
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kStopping);
  Join(1);
  Join(2);
  Pass(seconds(4));
  Answer(1, 1000);
  Answer(2, 1000);
  const auto next = Last<NewGeneration>(1);
  ASSERT_TRUE(next.has_value());
  EXPECT_TRUE(next->stop);
  EXPECT_EQ(next->start_step, 1000);
}

TEST_F(PredecessorTest, AStopThatLosesStepsReportsThem) {
  options_.resumed = true;
  options_.known_step = 1000;
  options_.known_checkpoint = 500;
  Make(2, 2, 2);
  On(RequestStop{});
  Pass(seconds(61));
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kStopped);
  EXPECT_EQ(coordinator_->report().lost_steps, 500);
}

// Two coordinators had the same term. Members ignore a number that they have seen.
TEST_F(PredecessorTest, ACoordinatorOfATermThatWasUsedBeforeCountsOnFromItsMembers) {
  options_.resumed = true;
  Make(1, 1, 1);
  const Generation seen = (Generation{7} << 32) | 5;
  MemberOptions options;
  options.hello = {"default/job", "pod-1", "agent-1", "s"};
  MemberCore member(options);
  const auto to_member = [&](const MemberEvent& event) {
    member.On(event, now_);
    return member.Take();
  };
  to_member(Started{});
  to_member(Connected{});
  to_member(FromTrainer{rendezvous::Join{"", "x"}});
  to_member(FromCoordinator{Prepare{seen}});
  to_member(Disconnected{});
  On(AgentConnected{1, options.hello});
  for (const MemberCommand& command : to_member(Connected{})) {
    const auto* send = std::get_if<SendCoordinator>(&command);
    if (send != nullptr && std::holds_alternative<rendezvous::Join>(send->message))
      On(MessageFrom{1, send->message});
  }
  alive_.push_back(1);
  Pass(seconds(4));
  const auto prepare = Last<Prepare>(1);
  ASSERT_TRUE(prepare.has_value());
  EXPECT_GT(prepare->generation, seen);
  const auto commands = to_member(FromCoordinator{*prepare});
  EXPECT_TRUE(std::any_of(commands.begin(), commands.end(),
                          [](const auto& c) { return std::holds_alternative<SendTrainer>(c); }));
}

TEST_F(PredecessorTest, AMemberWithANewerNumberRestartsAChangeThatIsUnderWay) {
  Make(1, 2, 2);
  Join(1);
  Pass(seconds(1));
  ASSERT_EQ(Last<Prepare>(1)->generation, (Generation{7} << 32) | 1);
  alive_.push_back(2);
  On(AgentConnected{2, {"default/job", "pod-2", "agent-2", ""}});
  On(MessageFrom{2, rendezvous::Join{Id(2), "x", {}, (Generation{7} << 32) | 9}});
  EXPECT_EQ(Last<Prepare>(1)->generation, (Generation{7} << 32) | 10);
  EXPECT_EQ(Last<Prepare>(2)->generation, (Generation{7} << 32) | 10);
}

TEST_F(PredecessorTest, ANumberOfAnotherTermChangesNothing) {
  Make(1, 1, 1);
  alive_.push_back(1);
  On(AgentConnected{1, {"default/job", "pod-1", "agent-1", ""}});
  On(MessageFrom{1, rendezvous::Join{Id(1), "x", {}, (Generation{6} << 32) | 9}});
  EXPECT_EQ(Last<Prepare>(1)->generation, (Generation{7} << 32) | 1);
}

// The device works on what it was given for up to a step.
TEST_F(PredecessorTest, AMemberMayTakeTwoOfItsStepsToAnswer) {
  Make(1, 2, 2);
  Form({1, 2});
  Commit(1, 20);
  Commit(1, 20);
  ExpectTimeToAnswerAfter20SecondSteps();
}

// The record of a step may arrive when a membership change has shown the step already.
TEST_F(PredecessorTest, ALateRecordShowsHowLongAStepTakes) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  Commit(1, 20);
  On(MessageFrom{3, Down{Id(3), "mutex", 0, ""}});
  Pass(seconds(1));
  for (const ConnectionId c : {1, 2}) Answer(c, 2);
  Progress late;
  late.records.push_back({});
  late.records[0].step = 2;
  late.records[0].seconds = 20;
  On(MessageFrom{1, late});
  ExpectTimeToAnswerAfter20SecondSteps();
}

// The predecessor had recorded more steps than any worker has kept.
TEST_F(PredecessorTest, StepsThatAreTrainedAgainShowHowLongAStepTakes) {
  options_.known_step = 1000;
  Make(1, 2, 2);
  Form({1, 2});
  ASSERT_EQ(coordinator_->report().step, 0);
  Commit(1, 20);
  Commit(1, 20);
  ExpectTimeToAnswerAfter20SecondSteps();
}

TEST_F(PredecessorTest, OneLongStepDoesNotMakeDeadlinesLonger) {
  Make(1, 2, 2);
  Form({1, 2});
  Commit(1, 0.1);
  Commit(1, 300);  // a validation
  On(MessageFrom{2, Down{Id(2), "mutex", 0, ""}});
  Pass(seconds(11));
  EXPECT_TRUE(Last<Evict>(1).has_value());
}

}  // namespace
}  // namespace ringmaster::rendezvous
