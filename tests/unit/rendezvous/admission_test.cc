// SPDX-License-Identifier: Apache-2.0

// Which workers the coordinator admits: fingerprints, trainers that cannot start, checkpoints.
#include <algorithm>

#include "tests/unit/rendezvous/coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

const Fingerprints kUsual = {"job", "data-a", "cpu avx512"};

class AdmissionTest : public CoordinatorTest {
 protected:
  void Make(int32_t min, int32_t target) { CoordinatorTest::Make(min, target, target); }
  void Connect(ConnectionId c) {
    alive_.push_back(c);
    Hello hello = {"default/job", "pod-" + std::to_string(c), "agent-" + std::to_string(c), ""};
    hello.node = "node-" + std::to_string(c);
    On(AgentConnected{c, hello});
  }
  void Join(ConnectionId c, const Fingerprints& fingerprints = kUsual, int start = 1) {
    if (std::ranges::find(alive_, c) == alive_.end()) Connect(c);
    On(MessageFrom{c, rendezvous::Join{Id(c, start), "x", fingerprints}});
  }
  void CannotStart(ConnectionId c, int start = 1) {
    On(MessageFrom{c, Fatal{64, "/data: no such file", Id(c, start)}});
  }
  static std::string Id(ConnectionId c, int start = 1) {
    return "agent-" + std::to_string(c) + "." + std::to_string(start);
  }
  // Answers the newest Prepare. `step` -1: no state.
  void Answer(ConnectionId c, int64_t step = -1, int64_t checkpoint = -1, int start = 1) {
    const auto prepare = Last<Prepare>(c);
    ASSERT_TRUE(prepare.has_value());
    MemberStatus status;
    status.generation = prepare->generation;
    status.member = Id(c, start);
    status.has_state = step >= 0;
    status.step = std::max<int64_t>(step, 0);
    if (prepare->find_checkpoint) {
      status.checkpoint_step = checkpoint;
      status.checkpoint_text = checkpoint < 0 ? "/ckpt has no checkpoint" : "/ckpt has an old checkpoint";
    }
    On(MessageFrom{c, status});
  }
  // Answers the newest Prepare before the search for checkpoints has ended.
  void Look(ConnectionId c) {
    MemberStatus status;
    status.generation = Last<Prepare>(c).value().generation;
    status.member = Id(c);
    status.looking = true;
    status.checkpoint_text = "/ckpt is still being read";
    On(MessageFrom{c, status});
  }
  void Commit(ConnectionId c, int64_t step, std::optional<int64_t> checkpoint = std::nullopt) {
    Progress progress;
    progress.records.emplace_back().step = step;
    progress.checkpoint_step = checkpoint;
    On(MessageFrom{c, progress});
  }
  const Report& report() { return coordinator_->report(); }
};

TEST_F(AdmissionTest, TheMajorityRefusesTheOneWithOtherDataByName) {
  Make(1, 3);
  Join(1, {"job", "data-b", "cpu avx512"});
  Join(2);
  Join(3);
  for (const ConnectionId c : {1, 2, 3}) Answer(c);
  const auto evict = Last<Evict>(1);
  ASSERT_TRUE(evict.has_value());
  EXPECT_TRUE(evict->refused);
  EXPECT_NE(evict->reason.find("pod-1 on node node-1 has data data-b, the others have data data-a"),
            std::string::npos)
      << evict->reason;
  EXPECT_EQ(Last<NewGeneration>(2)->members.size(), 2u);
  EXPECT_EQ(report().worker_failures, 1);
  EXPECT_EQ(report().last_failure->pod, "pod-1");
}

TEST_F(AdmissionTest, OnlyThePartsThatDifferAreNamed) {
  Make(1, 3);
  Join(1, {"run=1 steps=30 optimizer=aa", "data-a", "cpu avx512"});
  for (const ConnectionId c : {2, 3}) Join(c, {"run=1 steps=30 optimizer=bb", "data-a", "cpu avx512"});
  for (const ConnectionId c : {1, 2, 3}) Answer(c);
  const auto evict = Last<Evict>(1);
  ASSERT_TRUE(evict.has_value());
  EXPECT_NE(evict->reason.find("has job optimizer=aa, the others have job optimizer=bb: "), std::string::npos)
      << evict->reason;
}

TEST_F(AdmissionTest, OneWorkerOnTheCpuDoesNotMakeTheOthersLeave) {
  Make(1, 3);
  Join(1, {"job", "data-a", "cpu avx512"});
  Join(2, {"job", "data-a", "cuda sm_90"});
  Join(3, {"job", "data-a", "cuda sm_90"});
  for (const ConnectionId c : {1, 2, 3}) Answer(c);
  EXPECT_TRUE(Last<Evict>(1).has_value());
  EXPECT_FALSE(Last<Evict>(2).has_value());
  EXPECT_EQ(Last<NewGeneration>(3)->members.size(), 2u);
}

TEST_F(AdmissionTest, HoldersOfTheStateDecideOverAMajorityOfNewcomers) {
  Make(1, 3);
  Join(1);
  Pass(seconds(1));
  Answer(1);
  Commit(1, 1);
  sent_.clear();
  for (const ConnectionId c : {2, 3}) {
    Join(c, {"job", "data-b", "cpu avx512"});
    EXPECT_TRUE(Last<Evict>(c)->refused);
  }
  Pass(seconds(1));
  EXPECT_FALSE(Last<Prepare>(1).has_value()) << "a worker that does not fit interrupts no step";
  EXPECT_EQ(report().phase, GangPhase::kActive);
}

TEST_F(AdmissionTest, ATieBeforeAnyStateNamesBothWhenAllAreThere) {
  Make(1, 2);
  Join(1);
  Join(2, {"job", "data-b", "cpu avx512"});
  Answer(1);
  Answer(2);
  EXPECT_EQ(report().phase, GangPhase::kFailed);
  EXPECT_NE(report().failure.find("pod-1 on node node-1 has data data-a"), std::string::npos)
      << report().failure;
  EXPECT_NE(report().failure.find("pod-2 on node node-2 has data data-b"), std::string::npos)
      << report().failure;
}

TEST_F(AdmissionTest, ATieAwaitsTheWorkersThatAreStillToCome) {
  Make(1, 3);
  Join(1);
  Join(2, {"job", "data-b", "cpu avx512"});
  Pass(seconds(1));
  Answer(1);
  Answer(2);
  EXPECT_EQ(report().phase, GangPhase::kForming);
  Join(3);
  for (const ConnectionId c : {1, 2, 3}) Answer(c);
  EXPECT_EQ(Last<NewGeneration>(3)->members.size(), 2u);
  EXPECT_TRUE(Last<Evict>(2)->refused);
}

TEST_F(AdmissionTest, RefusedStartsCountUntilAStepCommits) {
  Make(2, 2);
  Join(1);
  Join(2);
  Answer(1);
  Answer(2);
  Commit(1, 1);
  On(MessageFrom{2, Down{Id(2), "mutex", 137, ""}});
  Pass(milliseconds(2));
  Answer(1, 1);
  EXPECT_EQ(report().phase, GangPhase::kPaused);
  for (int start = 2; start < 5; ++start) {
    Join(2, {"job", "data-b", "cpu avx512"}, start);
    Pass(milliseconds(60));
    Answer(1, 1);
    Answer(2, -1, -1, start);
    EXPECT_EQ(report().failures_without_progress, start - 1);
  }
  Join(2, kUsual, 5);
  Pass(milliseconds(60));
  Answer(1, 1);
  Answer(2, -1, -1, 5);
  EXPECT_EQ(report().phase, GangPhase::kActive);
}

TEST_F(AdmissionTest, RefusedStartsDoNotCountWhileTheOthersComputeALongStep) {
  Make(1, 2);
  Join(1);
  Pass(seconds(1));
  Answer(1);
  ASSERT_EQ(report().phase, GangPhase::kActive);
  for (int start = 1; start < 6; ++start) Join(2, {"job", "data-b", "cpu avx512"}, start);
  On(MessageFrom{2, Down{Id(2, 6), "exit", 64, "no such file"}});
  EXPECT_EQ(report().worker_failures, 6);
  EXPECT_EQ(report().failures_without_progress, 0);
  EXPECT_EQ(report().phase, GangPhase::kActive);
}

TEST_F(AdmissionTest, AWorkerThatCannotStartIsRefusedWhenAnotherHasJoined) {
  Make(1, 2);
  Connect(1);
  Connect(2);
  CannotStart(1);
  EXPECT_FALSE(Last<Evict>(1).has_value()) << "the other one may say the same";
  EXPECT_NE(report().phase, GangPhase::kFailed);
  Join(2);
  EXPECT_TRUE(Last<Evict>(1)->refused);
  EXPECT_EQ(report().last_failure->message, "/data: no such file");
  Pass(seconds(1));
  Answer(2);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  CannotStart(1, 2);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  EXPECT_EQ(Last<Evict>(1)->member, Id(1, 2));
}

TEST_F(AdmissionTest, TheJobFailsWhenNoWorkerCanStart) {
  Make(1, 2);
  Connect(1);
  Connect(2);
  CannotStart(1);
  CannotStart(2);
  EXPECT_EQ(report().phase, GangPhase::kFailed);
  EXPECT_EQ(Last<Exit>(1)->code, 64);
  EXPECT_EQ(report().last_failure->message, "/data: no such file");
}

TEST_F(AdmissionTest, TheJobFailsWhenTheOtherWorkersDoNotCome) {
  Make(1, 3);
  Connect(1);
  CannotStart(1);
  Pass(seconds(29));
  EXPECT_EQ(report().phase, GangPhase::kForming);
  Pass(seconds(2));
  EXPECT_EQ(report().phase, GangPhase::kFailed);
}

TEST_F(AdmissionTest, ANewcomerThatFailsAfterJoiningDoesNotEndTheJob) {
  Make(1, 2);
  Join(1);
  Pass(seconds(1));
  Answer(1);
  Commit(1, 1);
  Join(2);
  Pass(milliseconds(60));
  Answer(1, 1);
  Answer(2);
  ASSERT_EQ(Last<NewGeneration>(2)->members.size(), 2u);
  On(MessageFrom{2, Fatal{64, "another version of NCCL", Id(2), true}});
  EXPECT_TRUE(Last<Evict>(2)->refused);
  Pass(milliseconds(5));
  Answer(1, 1);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  EXPECT_EQ(Last<NewGeneration>(1)->members.size(), 1u);
}

TEST_F(AdmissionTest, TheWorkerThatHasTheCheckpointLoadsIt) {
  options_.known_checkpoint = 300;
  Make(1, 3);
  for (const ConnectionId c : {1, 2, 3}) Join(c);
  EXPECT_TRUE(Last<Prepare>(1)->find_checkpoint);
  Answer(1, -1, -1);
  Answer(2, -1, 300);
  Answer(3, -1, 100);
  const auto next = Last<NewGeneration>(1);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->loader, 1);
  EXPECT_EQ(next->checkpoint_floor, 300);
}

TEST_F(AdmissionTest, TrainingDoesNotStartOverWithoutTheKnownCheckpoint) {
  options_.known_checkpoint = 300;
  Make(1, 2);
  Join(1);
  Pass(seconds(1));
  Answer(1, -1, -1);
  EXPECT_EQ(report().phase, GangPhase::kForming) << "the other worker may have it";
  Join(2);
  Answer(1, -1, -1);
  Answer(2, -1, 200);
  EXPECT_FALSE(Last<NewGeneration>(1).has_value());
  EXPECT_EQ(report().phase, GangPhase::kFailed);
  for (const char* part : {"step 300", "pod-1 on node node-1: /ckpt has no checkpoint",
                           "pod-2 on node node-2: /ckpt has an old checkpoint"})
    EXPECT_NE(report().failure.find(part), std::string::npos) << report().failure;
}

TEST_F(AdmissionTest, AMemberThatStillLooksForCheckpointsIsAskedAgain) {
  Make(1, 2);
  Join(1);
  Join(2);
  const Generation first = Last<Prepare>(2)->generation;
  Answer(1, -1, -1);
  Look(2);
  EXPECT_FALSE(Last<NewGeneration>(1).has_value()) << "the other worker may have a checkpoint";
  Pass(seconds(1));
  EXPECT_GT(Last<Prepare>(2)->generation, first);
  EXPECT_TRUE(Last<Prepare>(2)->find_checkpoint);
  Answer(1, -1, -1);
  Answer(2, -1, 40);
  ASSERT_TRUE(Last<NewGeneration>(1).has_value());
  EXPECT_EQ(Last<NewGeneration>(1)->loader, 1);
  EXPECT_EQ(report().worker_failures, 0);
}

TEST_F(AdmissionTest, AMissingCheckpointIsNotMissedWhileAMemberStillLooks) {
  options_.known_checkpoint = 300;
  Make(1, 2);
  Join(1);
  Join(2);
  for (int second = 0; second < 600; second += 2) {
    Answer(1, -1, -1);
    Look(2);
    ASSERT_EQ(report().phase, GangPhase::kForming);
    Pass(seconds(2));
  }
  Answer(1, -1, -1);
  Look(2);
  EXPECT_EQ(report().phase, GangPhase::kFailed);
  EXPECT_NE(report().failure.find("pod-2 on node node-2: /ckpt is still being read"), std::string::npos)
      << report().failure;
}

TEST_F(AdmissionTest, TheKnownCheckpointDoesNotWaitForOtherStorage) {
  options_.known_checkpoint = 300;
  Make(1, 2);
  Join(1);
  Join(2);
  Look(1);
  Answer(2, -1, 300);
  ASSERT_TRUE(Last<NewGeneration>(1).has_value());
  EXPECT_EQ(Last<NewGeneration>(1)->loader, 1);
}

TEST_F(AdmissionTest, CheckpointsAreLookedForOnlyWhenNobodyHoldsTheState) {
  Make(1, 2);
  Join(1);
  Join(2);
  Answer(1);
  Answer(2);
  Commit(1, 1, 1);
  On(MessageFrom{2, Down{Id(2), "mutex", 137, ""}});
  Pass(milliseconds(2));
  EXPECT_FALSE(Last<Prepare>(1)->find_checkpoint);
  On(MessageFrom{1, Down{Id(1), "mutex", 137, ""}});
  Join(1, kUsual, 2);
  Join(2, kUsual, 2);
  Pass(milliseconds(2));
  Answer(1, -1, 1, 2);
  Answer(2, -1, 1, 2);
  EXPECT_TRUE(Last<Prepare>(1)->find_checkpoint);
  Answer(1, -1, 1, 2);
  Answer(2, -1, -1, 2);
  EXPECT_EQ(Last<NewGeneration>(2)->checkpoint_floor, 1);
  EXPECT_EQ(Last<NewGeneration>(2)->members[static_cast<size_t>(Last<NewGeneration>(2)->loader)].id,
            Id(1, 2));
}

}  // namespace
}  // namespace ringmaster::rendezvous
