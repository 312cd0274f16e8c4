// SPDX-License-Identifier: Apache-2.0

// Workers that come and go while their incarnation runs (elastic Horovod).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/rendezvous/program_coordinator_rig.h"

namespace ringmaster::rendezvous {
namespace {

// The launcher is agent 10; workers 0 and 1 start, and there may be 1 to 4.
class LiveWorkersTest : public ProgramCoordinatorTest {
 protected:
  LiveWorkersTest() {
    ProgramPolicy& policy = options_.programs.emplace().policy;
    policy.decider = ProgramPolicy::Decider::kRole;
    policy.decider_role = "launcher";
    policy.roles = {{"launcher"}};
    policy.counts_ranks = policy.live_workers = true;
    policy.workers.restart = ProgramRestart::kAlone;
    policy.backoff_initial = policy.backoff_max = seconds(1);
    policy.max_restarts = 2;
    roles_ = {{10, "launcher"}};
    Make(1, 2, 4);
    Form({0, 1, 10});
  }
  // The hosts that the launcher knows.
  std::vector<std::string> Hosts() const {
    std::vector<std::string> hosts;
    for (const Member& member : last_start_.members) {
      if (!member.role.empty()) continue;
      hosts.push_back(member.pod + (member.joined == 0 ? "" : "." + std::to_string(member.joined)));
    }
    return hosts;
  }
  void Ran(int n, std::vector<RankCount> ranks, int32_t open = 0) {
    state_[n].ranks = std::move(ranks);
    state_[n].open_ranks = open;
    Report(n);
  }
  using Names = std::vector<std::string>;
};

TEST_F(LiveWorkersTest, TheLauncherGoesOnWithoutALostWorker) {
  EXPECT_EQ(Hosts(), (Names{"pod-0", "pod-1"}));
  On(PodEnded{"pod-1"});
  EXPECT_EQ(Hosts(), (Names{"pod-0"}));
  EXPECT_TRUE(Runs(0) && Runs(10));
  EXPECT_EQ(report().generations, 1);
  EXPECT_EQ(report().worker_failures, 1);
  EXPECT_FALSE(report().incident.has_value());
  ASSERT_TRUE(report().last_failure.has_value());
  EXPECT_EQ(report().last_failure->pod, "pod-1");
  EXPECT_EQ(report().live_pods, (Names{"pod-0", "pod-10"}));
}

TEST_F(LiveWorkersTest, AWorkerThatComesJoinsWhatRuns) {
  state_[2].key = "key-2";
  Connect(2);
  EXPECT_TRUE(Runs(2));
  EXPECT_EQ(Hosts(), (Names{"pod-0", "pod-1", "pod-2.1"}));
  EXPECT_EQ(last_start_.members.back().key, "key-2");
  EXPECT_EQ(state_[2].generation, state_[0].generation);
  EXPECT_EQ(state_[10].version, 1);
  EXPECT_EQ(report().generations, 1);
  Connect(3);
  Connect(4);
  EXPECT_EQ(Hosts(), (Names{"pod-0", "pod-1", "pod-2.1", "pod-3.2"})) << "max is 4";
  EXPECT_FALSE(Runs(4));
}

TEST_F(LiveWorkersTest, AnAgentThatReplacesALostOneIsAnotherHost) {
  On(PodEnded{"pod-1"});
  connections_.erase(ConnectionOf(1));
  Connect(2);
  state_.erase(1);
  Connect(1);
  EXPECT_EQ(Hosts(), (Names{"pod-0", "pod-2.2", "pod-1.3"}));
}

TEST_F(LiveWorkersTest, AWorkerWhoseRankFailsStartsAgainAloneAsAnotherHost) {
  End(1, 137, "rank 1 of 2 was killed by signal 9");
  EXPECT_EQ(Hosts(), (Names{"pod-0"})) << "nothing can start on it";
  EXPECT_FALSE(report().incident.has_value());
  Pass(seconds(2));
  EXPECT_TRUE(Runs(1));
  EXPECT_EQ(state_[1].life, 1);
  EXPECT_EQ(Hosts(), (Names{"pod-0", "pod-1.2"}));
  EXPECT_EQ(report().generations, 1);
}

TEST_F(LiveWorkersTest, AWorkerThatFailsTooOftenEndsTheIncarnation) {
  for (int i = 0; i < 2; ++i) {
    End(1, 1, "the data is broken");
    Pass(seconds(2));
    ASSERT_TRUE(Runs(1));
  }
  End(1, 1, "the data is broken");
  Pass(seconds(1));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
  EXPECT_EQ(state_[10].phase, ProgramPhase::kStopping);
}

TEST_F(LiveWorkersTest, FewerThanMinWorkersEndTheIncarnation) {
  On(PodEnded{"pod-1"});
  On(PodEnded{"pod-0"});
  EXPECT_EQ(state_[10].phase, ProgramPhase::kStopping);
  EXPECT_FALSE(report().incident.has_value()) << "the controller sees to the pods";
  End(10, 143);
  Connect(2);
  Pass(seconds(30));
  EXPECT_TRUE(Runs(2) && Runs(10));
  EXPECT_EQ(Hosts(), (Names{"pod-2"}));
  EXPECT_EQ(report().generations, 2);
}

TEST_F(LiveWorkersTest, TheLossOfTheLauncherEndsTheIncarnation) {
  On(PodEnded{"pod-10"});
  EXPECT_EQ(state_[0].phase, ProgramPhase::kStopping);
  EXPECT_EQ(state_[1].phase, ProgramPhase::kStopping);
}

TEST_F(LiveWorkersTest, ALauncherThatGivesUpBecauseOfAWorkerIsNotTheCause) {
  End(1, 1, "ModuleNotFoundError: No module named 'x'");
  state_[10].evidence = "launcher";
  state_[10].phase = ProgramPhase::kEnded;
  state_[10].exit_code = 1;
  Report(10);
  Pass(milliseconds(500));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.pod, "pod-1");
  EXPECT_EQ(report().incident->root.message, "ModuleNotFoundError: No module named 'x'");
}

TEST_F(LiveWorkersTest, ALeavingWorkerIsNoHostAnyMoreAndStopsByItself) {
  On(MessageFrom{ConnectionOf(1), Leave{"terminated"}});
  EXPECT_EQ(Hosts(), (Names{"pod-0"}));
  EXPECT_TRUE(Runs(1)) << "its ranks may end by themselves";
  EXPECT_EQ(report().worker_failures, 0);
  Report(1);
  EXPECT_TRUE(Runs(1));
  state_[1].phase = ProgramPhase::kIdle;
  Report(1);
  EXPECT_EQ(exits_[1], 0);
  EXPECT_TRUE(Runs(0) && Runs(10));
}

TEST_F(LiveWorkersTest, SucceedsWhenNoRankIsOpen) {
  Connect(2);
  Ran(0, {}, 1);
  Ran(1, {}, 1);
  End(1, 137, "killed");  // the ranks of the others have new numbers then
  Ran(0, {{2, 0, 1}});
  End(10, 0);
  EXPECT_EQ(report().phase, GangPhase::kFinished) << "none was started on pod-2";
}

TEST_F(LiveWorkersTest, AnOpenRankContradictsTheLauncher) {
  Ran(0, {{2, 0, 1}});
  Ran(1, {}, 1);
  End(10, 0);
  EXPECT_EQ(report().phase, GangPhase::kActive);
  Pass(seconds(3));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_EQ(report().incident->root.message,
            "the launcher ended with exit code 0, but a rank on pod-1 was not seen to end with exit code 0");
}

TEST_F(LiveWorkersTest, ALauncherWithoutRanksFails) {
  End(10, 0);
  Pass(seconds(3));
  ASSERT_TRUE(report().incident.has_value());
  EXPECT_NE(report().incident->root.message.find("no agent has seen a rank"), std::string::npos);
}

TEST_F(LiveWorkersTest, ANewCoordinatorAdoptsThemWithTheirNames) {
  Connect(2);
  On(PodEnded{"pod-0"});
  const Generation generation = state_[10].generation;
  const int32_t version = state_[10].version;
  Make(1, 2, 4, 2, true);
  for (const int n : {1, 2, 10}) Connect(n);
  EXPECT_EQ(report().generation, generation);
  EXPECT_TRUE(Runs(1) && Runs(2) && Runs(10));
  EXPECT_GT(state_[10].version, version);
  EXPECT_EQ(Hosts(), (Names{"pod-1", "pod-2.1"}));
  state_.erase(0);
  Connect(0);
  EXPECT_EQ(Hosts(), (Names{"pod-1", "pod-2.1", "pod-0." + std::to_string(state_[10].version)}));
  EXPECT_EQ(report().generations, 0);
}

TEST_F(LiveWorkersTest, WithoutItsLauncherAnIncarnationIsNotAdopted) {
  Make(1, 2, 4, 2, true);
  for (const int n : {0, 1}) Connect(n);
  Pass(seconds(10));
  EXPECT_TRUE(Runs(0));
  Pass(seconds(15));
  EXPECT_EQ(state_[0].phase, ProgramPhase::kStopping);
  EXPECT_EQ(state_[1].phase, ProgramPhase::kStopping);
}

TEST_F(LiveWorkersTest, AListThatIsLostIsSentAgain) {
  const ConnectionId old = ConnectionOf(10);
  mute_.insert(10);
  Connect(2);
  EXPECT_EQ(state_[10].version, 0);
  mute_.clear();
  connections_.erase(old);
  On(AgentDisconnected{old});
  Connect(10);
  EXPECT_EQ(state_[10].version, 1);
  EXPECT_EQ(Hosts(), (Names{"pod-0", "pod-1", "pod-2.1"}));
}

}  // namespace
}  // namespace ringmaster::rendezvous
