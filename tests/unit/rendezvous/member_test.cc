// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/member.h"

#include <gtest/gtest.h>

#include "rendezvous/codec.h"
#include "rendezvous/connection.h"

namespace ringmaster::rendezvous {
namespace {

class MemberTest : public testing::Test {
 protected:
  MemberTest() {
    options_.hello = {"default/job", "pod-0", "agent", "s"};
    core_.emplace(options_);
  }
  std::vector<MemberCommand> On(const MemberEvent& event) {
    core_->On(event, now_);
    return core_->Take();
  }
  static bool Has(const std::vector<MemberCommand>& commands, const MemberCommand& wanted) {
    return std::find(commands.begin(), commands.end(), wanted) != commands.end();
  }
  template <class T>
  static bool Any(const std::vector<MemberCommand>& commands) {
    return std::any_of(commands.begin(), commands.end(),
                       [](const auto& c) { return std::holds_alternative<T>(c); });
  }
  void Up() {
    On(Started{});
    On(Connected{});
    On(FromTrainer{Join{"", "addr"}});
  }
  void StandStill(Generation generation) {
    On(FromCoordinator{Prepare{generation, Urgency::kAbort, false}});
    MemberStatus status;
    status.generation = generation;
    On(FromTrainer{status});
  }
  static NewGeneration Next(Generation generation) {
    return {generation, {{"agent.1", "pod-0", "addr"}}, {}, -1, false};
  }

  MemberOptions options_;
  std::optional<MemberCore> core_;
  Time now_{};
};

TEST_F(MemberTest, StartsConnectsAndJoinsUnderItsOwnId) {
  const auto start = On(Started{});
  EXPECT_TRUE(Has(start, Connect{}));
  EXPECT_TRUE(Has(start, StartTrainer{"agent.1"}));
  EXPECT_TRUE(Has(On(Connected{}), SendCoordinator{options_.hello}));
  EXPECT_TRUE(Has(On(FromTrainer{Join{"", "addr"}}), SendCoordinator{Join{"agent.1", "addr"}}));
}

TEST_F(MemberTest, AFailedOperationIsReportedOnEveryConnectionUntilAnOrderCame) {
  Up();
  StandStill(5);
  On(FromCoordinator{Next(5)});
  const OperationFailed failed{5, "agent.1", "rank 1 is gone"};
  EXPECT_TRUE(Has(On(FromTrainer{OperationFailed{5, "", "rank 1 is gone"}}), SendCoordinator{failed}));
  On(Disconnected{});
  now_ += std::chrono::hours(1);
  const auto waiting = On(Tick{});
  EXPECT_FALSE(Any<KillTrainer>(waiting)) << "it may hold the only copy of the state";
  EXPECT_FALSE(Any<ExitAgent>(waiting));
  EXPECT_TRUE(Has(On(Connected{}), SendCoordinator{failed}));
  EXPECT_FALSE(Any<SendCoordinator>(On(FromTrainer{OperationFailed{4, "", "late"}})));
  On(FromCoordinator{Prepare{6, Urgency::kAbort, false}});
  EXPECT_FALSE(Any<SendCoordinator>(On(FromTrainer{OperationFailed{5, "", "crossed the order"}})));
  On(Disconnected{});
  EXPECT_FALSE(Has(On(Connected{}), SendCoordinator{failed}));
}

TEST_F(MemberTest, FactsAreRepeatedOnANewConnectionUntilTheTrainerDies) {
  Up();
  const Facts facts = {"NVIDIA H200", "580.95", "mlx5_0:1", {"gpu 0: hot"}};
  EXPECT_TRUE(Has(On(FromTrainer{facts}), SendCoordinator{facts}));
  On(Disconnected{});
  EXPECT_TRUE(Has(On(Connected{}), SendCoordinator{facts}));
  On(TrainerLost{"mutex", ""});
  On(Disconnected{});
  EXPECT_FALSE(Has(On(Connected{}), SendCoordinator{facts}));
}

TEST_F(MemberTest, FencesOlderMessages) {
  Up();
  StandStill(5);
  EXPECT_FALSE(Any<SendTrainer>(On(FromCoordinator{Prepare{4, Urgency::kAbort, false}})));
  EXPECT_FALSE(Any<SendTrainer>(On(FromCoordinator{Next(4)})));
  EXPECT_TRUE(Any<SendTrainer>(On(FromCoordinator{Next(5)})));
  EXPECT_FALSE(Any<SendTrainer>(On(FromCoordinator{Next(5)})));  // repeated
  // A repeated Prepare is answered from memory.
  const auto again = On(FromCoordinator{Prepare{5, Urgency::kAbort, false}});
  EXPECT_FALSE(Any<SendTrainer>(again));
  EXPECT_TRUE(Any<SendCoordinator>(again));
}

TEST_F(MemberTest, ANewIncarnationDoesNotGetTheGenerationOfItsPredecessor) {
  Up();
  StandStill(5);
  On(TrainerLost{"mutex", ""});
  On(TrainerReaped{137});
  now_ += seconds(1);
  EXPECT_TRUE(Has(On(Tick{}), StartTrainer{"agent.2"}));
  On(FromTrainer{Join{"", "addr"}});
  EXPECT_FALSE(Any<SendTrainer>(On(FromCoordinator{Next(5)})));
}

TEST_F(MemberTest, ADeathIsReportedAtOnceAndAgainWithTheExitCode) {
  Up();
  const auto lost = On(TrainerLost{"mutex", ""});
  EXPECT_TRUE(Has(lost, SendCoordinator{Down{"agent.1", "mutex", 0, ""}}));
  EXPECT_TRUE(Has(lost, KillTrainer{}));
  EXPECT_TRUE(Has(On(TrainerReaped{139}), SendCoordinator{Down{"agent.1", "mutex", 139, ""}}));
}

TEST_F(MemberTest, ADeathDetectedOnlyByReapingIsReportedWithTheExitCode) {
  Up();
  const auto reaped = On(TrainerReaped{137});
  EXPECT_TRUE(Has(reaped, SendCoordinator{Down{"agent.1", "exit", 137, ""}}));
  EXPECT_FALSE(Has(reaped, SendCoordinator{Down{"agent.1", "exit", 0, ""}}));
}

TEST_F(MemberTest, EarlyCrashesBackOff) {
  Up();
  Duration before = Duration::zero();
  for (int i = 0; i < 4; ++i) {
    On(TrainerReaped{1});
    Duration waited = Duration::zero();
    while (core_->member().empty()) {
      now_ += milliseconds(10);
      waited += milliseconds(10);
      On(Tick{});
    }
    EXPECT_GT(waited, before);
    before = waited;
  }
}

TEST_F(MemberTest, ANewConnectionRepeatsWhatTheCoordinatorNeeds) {
  Up();
  StandStill(5);
  On(FromCoordinator{Next(5)});
  Progress progress;
  progress.records.resize(1);
  On(FromTrainer{progress});
  On(Disconnected{});
  Done done;
  EXPECT_FALSE(Any<SendCoordinator>(On(FromTrainer{done})));
  const auto again = On(Connected{});
  EXPECT_TRUE(Has(again, SendCoordinator{options_.hello}));
  EXPECT_TRUE(Has(again, SendCoordinator{Join{"agent.1", "addr", {}, 5}}));
  EXPECT_TRUE(Has(again, SendCoordinator{progress}));
  EXPECT_TRUE(Has(again, SendCoordinator{done}));
}

// A relay that is dead takes what is sent to it, until the agent connects directly.
TEST_F(MemberTest, ANewConnectionRepeatsTheStepsOfALongAbsence) {
  Up();
  StandStill(5);
  On(FromCoordinator{Next(5)});
  Progress all;
  for (int64_t step = 1; step <= 500; ++step) {
    Progress one;
    one.records.resize(1);
    one.records.front().step = step;
    all.records.push_back(one.records.front());
    On(FromTrainer{one});
  }
  On(Disconnected{});
  std::vector<StepRecord> repeated;
  for (const MemberCommand& command : On(Connected{})) {
    const auto* send = std::get_if<SendCoordinator>(&command);
    const auto* progress = send == nullptr ? nullptr : std::get_if<Progress>(&send->message);
    if (progress == nullptr) continue;
    EXPECT_LE(Encode(*progress).size(), kMaxIncompleteBytesEach) << "all members send at once";
    repeated.insert(repeated.end(), progress->records.begin(), progress->records.end());
  }
  EXPECT_EQ(repeated, all.records);
}

TEST_F(MemberTest, OnlyTheLastPartOfALargeReportHasItsOtherFields) {
  Up();
  StandStill(5);
  On(FromCoordinator{Next(5)});
  for (const int32_t count : {kRecordsPerMessage, kRecordsPerMessage + 1, 3 * kRecordsPerMessage}) {
    Progress large;
    large.note = "validating";
    large.checkpoint_step = 7;
    large.records.resize(static_cast<size_t>(count));
    int32_t records = 0;
    int32_t notes = 0;
    for (const MemberCommand& command : On(FromTrainer{large})) {
      const auto& progress = std::get<Progress>(std::get<SendCoordinator>(command).message);
      records += static_cast<int32_t>(progress.records.size());
      notes += progress.note.empty() ? 0 : 1;
      EXPECT_EQ(progress.checkpoint_step.has_value(), !progress.note.empty());
    }
    EXPECT_EQ(records, count);
    EXPECT_EQ(notes, 1);
  }
}

// A checkpoint is reported once. A new coordinator that does not know of it would accept an older one.
TEST_F(MemberTest, ANewConnectionRepeatsTheCheckpointAndTheValidationOfALongAbsence) {
  Up();
  StandStill(5);
  On(FromCoordinator{Next(5)});
  On(Disconnected{});
  Progress saved;
  saved.checkpoint_step = 7;
  On(FromTrainer{saved});
  Progress validated;
  validated.validation = ValidationResult{8, 2.5, 0.75};
  On(FromTrainer{validated});
  Progress later;
  later.records.resize(1);
  later.note = "loading";
  On(FromTrainer{later});
  later.checkpoint_step = 7;
  later.validation = ValidationResult{8, 2.5, 0.75};
  EXPECT_TRUE(Has(On(Connected{}), SendCoordinator{later}));
}

TEST_F(MemberTest, LosingTheCoordinatorDoesNotInterruptTheTrainer) {
  Up();
  EXPECT_FALSE(Any<KillTrainer>(On(Disconnected{})));
  now_ += seconds(1);
  EXPECT_TRUE(Has(On(Tick{}), Connect{}));
}

TEST_F(MemberTest, TheFirstTerminateLeavesByPlanAndTheSecondExitsAtOnce) {
  Up();
  const auto first = On(Terminate{});
  EXPECT_TRUE(Any<SendCoordinator>(first));
  EXPECT_FALSE(Any<KillTrainer>(first));
  const auto second = On(Terminate{});
  EXPECT_TRUE(Has(second, KillTrainer{}));
  EXPECT_TRUE(Any<ExitAgent>(second));
  EXPECT_TRUE(core_->ended());
}

TEST_F(MemberTest, AfterTheEndOfTheJobTheFirstTerminateChangesNothing) {
  Up();
  On(FromCoordinator{Exit{0, "finished"}});
  const auto first = On(Terminate{});
  EXPECT_FALSE(Any<KillTrainer>(first));
  EXPECT_FALSE(core_->ended());
  EXPECT_TRUE(Any<ExitAgent>(On(Terminate{})));
}

TEST_F(MemberTest, ExitWaitsForTheTrainerUpToAGrace) {
  Up();
  EXPECT_TRUE(Has(On(FromCoordinator{Exit{0, "finished", true}}), SendTrainer{Exit{0, "finished", true}}));
  EXPECT_FALSE(core_->ended());
  EXPECT_TRUE(Has(On(TrainerReaped{0}), ExitAgent{0, "finished", true}));
}

TEST_F(MemberTest, APlannedLeaveDoesNotFinishTheJob) {
  Up();
  On(Terminate{});
  On(FromCoordinator{Exit{0, "left by plan"}});
  EXPECT_TRUE(Has(On(TrainerReaped{0}), ExitAgent{0, "left by plan"}));
}

TEST_F(MemberTest, AFatalTrainerEndsTheAgentWith64) {
  Up();
  On(TrainerLost{"exit", ""});
  EXPECT_TRUE(Any<SendCoordinator>(On(TrainerReaped{64})));
  EXPECT_FALSE(core_->ended());
  const auto end = On(FromCoordinator{Exit{64, "x"}});
  ASSERT_TRUE(Any<ExitAgent>(end));
  EXPECT_EQ(std::get<ExitAgent>(end.back()).code, 64);
}

TEST_F(MemberTest, AFatalWaitsForTheDecisionOfTheCoordinator) {
  On(Started{});
  On(Connected{});
  const auto fatal = On(FromTrainer{Fatal{64, "no data"}});
  EXPECT_TRUE(Has(fatal, SendCoordinator{Fatal{64, "no data", "agent.1", false}}));
  On(TrainerReaped{64});
  now_ += seconds(60);
  EXPECT_FALSE(Any<StartTrainer>(On(Tick{})));
  EXPECT_FALSE(core_->ended());
  On(Disconnected{});
  EXPECT_TRUE(Has(On(Connected{}), SendCoordinator{Fatal{64, "no data", "agent.1", false}}));
  // It is this worker's fault: it tries again, ever more slowly.
  Duration pause{};
  for (int start = 2; start < 6; ++start) {
    const Time before = now_;
    auto commands = On(FromCoordinator{Evict{"agent." + std::to_string(start - 1), "no data", true}});
    for (int i = 0; i < 100 && !Any<StartTrainer>(commands); ++i) {
      now_ = core_->next_wakeup();
      commands = On(Tick{});
    }
    ASSERT_TRUE(Any<StartTrainer>(commands));
    EXPECT_GT(now_ - before, pause);
    pause = now_ - before;
    On(FromTrainer{Fatal{64, "no data"}});
    On(TrainerReaped{64});
  }
}

TEST_F(MemberTest, ARefusedAgentOfAClusterExits) {
  options_.exit_when_refused = true;
  core_.emplace(options_);
  Up();
  EXPECT_TRUE(Has(On(FromCoordinator{Evict{"agent.1", "other data", true}}), KillTrainer{}));
  EXPECT_TRUE(Has(On(TrainerReaped{137}), ExitAgent{kExitRefused, "other data"}));
}

TEST_F(MemberTest, EvictAppliesOnlyToTheNamedMember) {
  Up();
  EXPECT_FALSE(Any<KillTrainer>(On(FromCoordinator{Evict{"agent.0", ""}})));
  EXPECT_TRUE(Any<KillTrainer>(On(FromCoordinator{Evict{"agent.1", ""}})));
}

}  // namespace
}  // namespace ringmaster::rendezvous
