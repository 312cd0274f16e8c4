// SPDX-License-Identifier: Apache-2.0

// Members whose states differ: how the coordinator learns of it, and what it does.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/rendezvous/coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

class DivergenceTest : public CoordinatorTest {
 protected:
  void Report(ConnectionId c, const std::string& text) {
    const Generation generation = Last<NewGeneration>(c)->generation;
    On(MessageFrom{c, OperationFailed{generation, Id(c), text, false, {}, true}});
  }
  void AnswerWith(ConnectionId c, int64_t step, uint64_t hash) {
    MemberStatus status;
    status.generation = Last<Prepare>(c)->generation;
    status.member = Id(c);
    status.has_state = true;
    status.step = step;
    status.params_hash = hash;
    On(MessageFrom{c, status});
  }
  bool HasEvent(const std::string& text) const {
    return std::any_of(lines_.begin(), lines_.end(),
                       [&](const EventLine& line) { return line.text.find(text) != std::string::npos; });
  }
};

TEST_F(DivergenceTest, MembersThatDifferVoteAtOnceAndTheOddOneIsNamed) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  Commit(1, 0.1);
  const Generation before = Last<Prepare>(1)->generation;
  Report(1, "the states of step 1 differ: pod-3 (rank 2) differs from the others in bias");
  ASSERT_GT(Last<Prepare>(1)->generation, before) << "no loss explains it, so nothing is awaited";
  AnswerWith(1, 1, 7);
  AnswerWith(2, 1, 7);
  AnswerWith(3, 1, 8);
  const NewGeneration next = *Last<NewGeneration>(3);
  EXPECT_EQ(next.sources, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(next.params_hash, 7u);
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kActive);
  EXPECT_TRUE(
      HasEvent("pod-3 failed (corrupt): its state of step 1 differs from the majority's: the states of "
               "step 1 differ: pod-3 (rank 2) differs from the others in bias"));
}

TEST_F(DivergenceTest, WithoutAMajorityTheJobFailsAndNamesWorkersAndWhatDiffers) {
  Make(1, 2, 2);
  Form({1, 2});
  Report(2, "pod-1 (rank 0), pod-2 (rank 1) differ in bias");
  AnswerWith(1, 40, 7);
  AnswerWith(2, 40, 8);
  const rendezvous::Report& report = coordinator_->report();
  EXPECT_EQ(report.phase, GangPhase::kFailed);
  EXPECT_EQ(
      report.failure,
      "the states of step 40 differ and no version has a majority: pod-1 (rank 0), pod-2 (rank 1) differ in "
      "bias: pod-1 has 0000000000000007/0000000000000000, pod-2 has 0000000000000008/0000000000000000");
}

// The program diverges again from the state that it has fetched.
TEST_F(DivergenceTest, AProgramThatDivergesAgainAndAgainFailsTheJob) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  for (int64_t step = 1; step <= 2; ++step) {
    Commit(1, 0.1);
    Report(2, "pod-3 differs in lr");
    for (const ConnectionId c : {1, 2}) AnswerWith(c, step, 7);
    AnswerWith(3, step, 8);
    ASSERT_EQ(coordinator_->report().phase, GangPhase::kActive);
  }
  Commit(1, 0.1);
  Report(2, "pod-3 differs in lr");
  EXPECT_EQ(coordinator_->report().phase, GangPhase::kFailed);
  EXPECT_EQ(coordinator_->report().failure,
            "the states of the workers differ again and again: pod-3 differs in lr");
}

TEST_F(DivergenceTest, DivergencesThatAreFarApartAreFaultsOfTheirWorkers) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  for (int i = 0; i < 5; ++i) {
    Progress progress;
    progress.records.push_back({});
    progress.records[0].step = coordinator_->report().step + 1000;
    On(MessageFrom{1, progress});
    Report(2, "pod-3 differs");
    for (const ConnectionId c : {1, 2}) AnswerWith(c, progress.records[0].step, 7);
    AnswerWith(3, progress.records[0].step, 8);
    ASSERT_EQ(coordinator_->report().phase, GangPhase::kActive) << i;
  }
}

// A member that is lost for a moment is no reason to forget what another one has reported: it reports once.
TEST_F(DivergenceTest, AReportOutlivesAConnectionThatIsLostForAMoment) {
  Make(1, 2, 2);
  Form({1, 2});
  Commit(1, 0.1);
  const Generation before = Last<NewGeneration>(1)->generation;
  On(AgentDisconnected{2});  // an abort is due after the gather window
  On(MessageFrom{1, OperationFailed{before, Id(1), "the states differ", false, {}, true}});
  On(AgentConnected{9, {"default/job", "pod-2", "agent-2", ""}});
  On(MessageFrom{9, rendezvous::Join{Id(2), "x"}});
  std::erase(alive_, ConnectionId{2});
  alive_.push_back(9);
  Pass(seconds(1));
  EXPECT_GT(Last<Prepare>(1)->generation, before);
}

// The majority that contradicted it may be gone: then a checkpoint is safe, and a guess is not.
TEST_F(DivergenceTest, AStateThatWasOutvotedIsNoSourceWhenTheMajorityHasDied) {
  Make(1, 3, 3);
  Form({1, 2, 3});
  Commit(1, 0.1);
  Report(1, "differ");
  AnswerWith(1, 1, 7);
  AnswerWith(2, 1, 7);
  AnswerWith(3, 1, 8);
  On(MessageFrom{1, Down{Id(1), "exit", 1, ""}});
  On(MessageFrom{2, Down{Id(2), "exit", 1, ""}});
  Pass(milliseconds(10));
  AnswerWith(3, 1, 8);  // it has not fetched the right state yet
  Pass(seconds(5));
  AnswerWith(3, 1, 8);
  Pass(seconds(5));
  const NewGeneration next = *Last<NewGeneration>(3);
  EXPECT_EQ(next.members.size(), 1u);
  EXPECT_TRUE(next.sources.empty());
  EXPECT_EQ(next.start_step, -1);
}

}  // namespace
}  // namespace ringmaster::rendezvous
