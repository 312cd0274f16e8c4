// SPDX-License-Identifier: Apache-2.0

// Gang placement: create, release, withdraw; and refusals, which prevent the creation of pods, and
// after which a gang is created gated and released together.
#include <gtest/gtest.h>

#include "operator/core/decide/decide_steps.h"
#include "operator/core/decide/rules.h"
#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {
namespace {

const Refusal kQuotaRefusal = {RefusalKind::kQuota, "exceeded quota: gpus", kT0 - seconds(2), kT0};

// Returns a WaitingWorld after pods of it were refused and the cause is gone: all of its pods exist, gated,
// or it waits.
Observed GatedWorld(int32_t size, int32_t room, bool native = false) {
  Observed o = WaitingWorld(size, room, native);
  o.refusal = kQuotaRefusal;
  Obey(o, Decide(o, kT0), kT0);
  o.refusal.reset();
  EXPECT_EQ(o.pods.size(), room < size ? 0 : static_cast<size_t>(size));
  return o;
}

// Returns a gang whose pods were released, after which others took the room: the scheduler found a node only
// for the first one.
Observed CrowdedWorld(int32_t size) {
  Observed o = GatedWorld(size, size);
  o.fit.reserved.clear();
  for (Pod& pod : o.pods) {
    pod.gated = false;
    pod.waiting_reason = kUnschedulable;
    pod.waiting_message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu";
  }
  o.pods[0].node = "node";
  o.pods[0].waiting_reason.clear();
  return o;
}

TEST(Gang, PodsAreCreatedAfterTheSupportingObjects) {
  Observed o = WaitingWorld(4, 4);
  EXPECT_EQ(o.prepared, (PrepareGang{1, 4, 4}));
  const auto created = All<CreatePod>(Decide(o, kT0));
  ASSERT_EQ(created.size(), 4U);
  for (const CreatePod& create : created) EXPECT_FALSE(create.gated);
  Settle(o, kT0);
  EXPECT_TRUE(o.status.ledger.placed);
}

TEST(Gang, OfWhichSomePodsAreRefusedIsWithdrawnAndCreatedGated) {
  Observed o = WaitingWorld(4, 4);
  Obey(o, Decide(o, kT0), kT0);
  o.pods.resize(2);
  o.refusal = kQuotaRefusal;
  const Decision withdraw = Decide(o, kT0);
  const Ledger after = Written(withdraw);
  EXPECT_EQ(after.attempt, 2);
  ASSERT_EQ(withdraw.events.size(), 1U);
  EXPECT_EQ(withdraw.events[0].reason, "QuotaExceeded");
  EXPECT_TRUE(withdraw.events[0].message.starts_with(
      "exceeded quota: gpus; 2 of 4 workers were created: all workers are withdrawn"));
  Settle(o, kT0);
  EXPECT_TRUE(o.pods.empty());
  const Time later = *after.not_before;
  for (int i = 0; i < 9 && o.pods.empty(); ++i) Obey(o, Decide(o, later), later);
  ASSERT_EQ(o.pods.size(), 4U);
  for (const Pod& pod : o.pods) EXPECT_TRUE(pod.gated);
  // One is refused again: the others hold no nodes, so they stay.
  o.pods.resize(3);
  const Decision more = Decide(o, later);
  ASSERT_EQ(All<CreatePod>(more).size(), 1U);
  EXPECT_TRUE(All<CreatePod>(more)[0].gated);
  o.refusal.reset();
  Settle(o, later);
  EXPECT_TRUE(o.status.ledger.placed);
}

TEST(Gang, WithItsMinimumStaysWhenFurtherPodsAreRefused) {
  Observed o = WaitingWorld(4, 4, true);
  Obey(o, Decide(o, kT0), kT0);
  o.pods.resize(2);
  o.refusal = kQuotaRefusal;
  Settle(o, kT0);
  EXPECT_EQ(o.status.ledger.attempt, 1);
}

TEST(Gang, ThatRanKeepsItsStateWhenAReplacementIsRefused) {
  Observed o = RunningWorld(4);
  o.job.min = 3;
  o.provider = GangProvider::kGate;
  o.prepared = PrepareGang{1, 4, 3};
  o.pods.resize(2);
  o.refusal = kQuotaRefusal;
  o.refusal->retry_at = kT0 + seconds(60);
  Settle(o, kT0);
  EXPECT_EQ(o.status.ledger.attempt, 1);
  EXPECT_EQ(o.pods.size(), 2U);
}

TEST(Gang, IsReleasedAsAWholeWhenThereIsRoom) {
  Observed o = GatedWorld(4, 4);
  const auto released = All<ReleaseGang>(Decide(o, kT0));
  ASSERT_EQ(released.size(), 1U);
  EXPECT_EQ(released[0].pods.size(), 4U);
  EXPECT_EQ(released[0].attempt, 1);
  Settle(o, kT0);
  EXPECT_TRUE(o.status.ledger.placed);
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kAllPodsPlaced);
}

TEST(Gang, WaitsWithoutPodsAndReportsWhatIsMissing) {
  Observed o = GatedWorld(4, 3);
  const Decision wait = Settle(o, kT0 + kSettlePeriod);
  EXPECT_EQ(wait.requeue_at, kT0 + o.job.gang_timeout);
  EXPECT_TRUE(o.pods.empty());
  EXPECT_TRUE(o.fit.reserved.empty());
  const Condition& scheduled = ConditionOf(o, ConditionType::kScheduled);
  EXPECT_EQ(scheduled.truth, Truth::kFalse);
  EXPECT_EQ(scheduled.reason, Reason::kWaitingForCapacity);
  EXPECT_EQ(scheduled.message, "needs 8 x nvidia.com/gpu on 4 nodes; 2 nodes have room");
  EXPECT_EQ(o.status.display.phase, Phase::kPending);
  EXPECT_EQ(o.status.ledger.time_accounting, TimeAccounting::kQueue);
}

// What it says about room later would replace this only after kWaitingInterval.
TEST(Gang, SaysNothingAboutRoomWhileDevicesAreBeingRead) {
  Observed o = GatedWorld(4, 3);
  o.fit.unread = true;
  Settle(o, kT0 + kSettlePeriod);
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kPreparing);
  o.fit.unread = false;
  Settle(o, kT0 + kSettlePeriod + kDisplayInterval);
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kWaitingForCapacity);
}

TEST(Gang, WaitingCostsNoWrites) {
  Observed o = GatedWorld(4, 3);
  Settle(o, kT0 + kDisplayInterval);
  for (Time now = kT0 + kDisplayInterval; now < kT0 + 20 * o.job.gang_timeout; now += o.job.gang_timeout / 2)
    EXPECT_TRUE(Decide(o, now).actions.empty()) << ToString(Decide(o, now));
  EXPECT_EQ(o.status.ledger.attempt, 1);
  // A message that changes with each pod that ends somewhere is written once per kWaitingInterval.
  o.fit.missing = "needs 8 x nvidia.com/gpu on 4 nodes; 3 nodes have room";
  const Decision wait = Decide(o, kT0 + seconds(30));
  EXPECT_TRUE(wait.actions.empty()) << ToString(wait);
  EXPECT_EQ(Settle(o, kT0 + kDisplayInterval + kWaitingInterval).reason, "waiting for pods");
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).message, o.fit.missing);
  o.fit = {4, ""};
  Settle(o, kT0 + 20 * o.job.gang_timeout);
  EXPECT_EQ(o.pods.size(), 4U);
  EXPECT_TRUE(o.status.ledger.placed);
}

TEST(Gang, AwaitsAsMuchRoomAsItNeeds) {
  Observed o = GatedWorld(4, 3);
  EXPECT_EQ(AwaitedRoom(o, o.fit, kT0), 4);
  o.fit = {4, ""};
  EXPECT_EQ(AwaitedRoom(o, o.fit, kT0), std::nullopt);
  Observed elastic = GatedWorld(4, 1, true);
  EXPECT_EQ(AwaitedRoom(elastic, elastic.fit, kT0), 4);
  EXPECT_EQ(AwaitedRoom(elastic, elastic.fit, kT0 + elastic.job.gang_timeout), 2);
  Observed running = RunningWorld(4);
  running.provider = GangProvider::kGate;
  running.fit = {0, "full"};
  EXPECT_EQ(AwaitedRoom(running, running.fit, kT0), std::nullopt);
  running.pods.resize(2);
  EXPECT_EQ(AwaitedRoom(running, running.fit, kT0), 1);
}

// A decision may have to wait until the view includes an earlier write. Others must not take the room
// meanwhile.
TEST(Gang, KeepsItsTurnUntilItsPlacesAreReserved) {
  Observed o = GatedWorld(4, 3);
  EXPECT_EQ(QueuedRoom(o, o.fit, kT0), 4);
  o.fit = {4, ""};
  EXPECT_EQ(QueuedRoom(o, o.fit, kT0), 4);
  o.fit.reserved = {0, 1, 2, 3};
  EXPECT_EQ(QueuedRoom(o, o.fit, kT0), std::nullopt);
  o.fit.reserved.clear();
  o.status.ledger.not_before = kT0 + seconds(5);
  EXPECT_EQ(QueuedRoom(o, o.fit, kT0), std::nullopt) << "it is not about to start";
  Observed running = RunningWorld(4);
  running.provider = GangProvider::kGate;
  running.pods.resize(2);
  running.fit = {2, ""};
  EXPECT_EQ(QueuedRoom(running, running.fit, kT0), std::nullopt) << "it only grows";
}

TEST(Gang, GivesUpItsPlacesWhenOneOfThemIsLost) {
  Observed o = GatedWorld(4, 4);
  o.fit = {3, "needs 8 x nvidia.com/gpu on 4 nodes; 3 nodes have room", {0, 1, 2}};
  const Decision decision = Decide(o, kT0);
  ASSERT_EQ(All<ReserveRoom>(decision).size(), 1U);
  EXPECT_TRUE(All<ReserveRoom>(decision)[0].ranks.empty());
  EXPECT_TRUE(All<ReleaseGang>(decision).empty());
}

TEST(Gang, GivesUpItsPlacesDuringARefusal) {
  Observed o = GatedWorld(4, 4);
  o.refusal = Refusal{RefusalKind::kQuota, "exceeded quota: gpus", kT0, kT0 + seconds(60)};
  const Decision decision = Decide(o, kT0);
  ASSERT_EQ(All<ReserveRoom>(decision).size(), 1U);
  EXPECT_TRUE(All<ReserveRoom>(decision)[0].ranks.empty());
}

TEST(Gang, IsWithdrawnAfterItsTimeoutAndRetriedLater) {
  Observed o = CrowdedWorld(4);
  Settle(o, kT0);
  const Time late = kT0 + o.job.gang_timeout;
  const Decision withdraw = Decide(o, late);
  const Ledger after = Written(withdraw);
  EXPECT_EQ(after.attempt, 2);
  EXPECT_EQ(after.withdrawals, 1);
  EXPECT_EQ(after.restarts.total, 0);
  ASSERT_TRUE(after.not_before.has_value());
  EXPECT_GT(*after.not_before, late);
  ASSERT_EQ(withdraw.events.size(), 1U);
  EXPECT_EQ(withdraw.events[0].reason, "GangTimeout");
  EXPECT_NE(withdraw.events[0].message.find("3 Insufficient nvidia.com/gpu"), std::string::npos);
  Settle(o, late);
  EXPECT_TRUE(o.pods.empty());
  const Condition& scheduled = ConditionOf(o, ConditionType::kScheduled);
  EXPECT_EQ(scheduled.reason, Reason::kGangTimeout);
  EXPECT_NE(scheduled.message.find("3 Insufficient nvidia.com/gpu"), std::string::npos);
  o.fit = {4, ""};
  Settle(o, *after.not_before);
  EXPECT_EQ(o.pods.size(), 4U);
  EXPECT_TRUE(o.status.ledger.placed);
  EXPECT_EQ(o.status.ledger.withdrawals, 0);
}

TEST(Gang, TwoJobsPauseForDifferentTimesAfterAWithdrawal) {
  std::vector<Duration> pauses;
  for (const char* uid : {"a", "b", "c", "d"}) {
    Observed o = CrowdedWorld(4);
    o.job.uid = uid;
    Settle(o, kT0);
    const Time late = kT0 + o.job.gang_timeout;
    pauses.push_back(*Written(Decide(o, late)).not_before - late);
    EXPECT_GE(pauses.back(), o.job.backoff_initial / 2);
    EXPECT_LE(pauses.back(), o.job.backoff_initial);
  }
  std::sort(pauses.begin(), pauses.end());
  EXPECT_EQ(std::unique(pauses.begin(), pauses.end()), pauses.end());
}

TEST(Gang, PodsBeingScheduledAtTheTimeoutGetAnotherPeriod) {
  Observed o = GatedWorld(2, 2);
  for (Pod& pod : o.pods) pod.gated = false;  // released, without an answer of the scheduler yet
  o.fit.reserved.clear();
  const Time late = kT0 + o.job.gang_timeout;
  EXPECT_FALSE(Settle(o, late).reason.starts_with("the gang is withdrawn"));
  EXPECT_EQ(o.status.ledger.attempt, 1);
  Settle(o, late + o.job.gang_timeout);
  EXPECT_EQ(o.status.ledger.attempt, 2);
}

TEST(Gang, APartlyPlacedGangReleasesItsNodes) {
  Observed o = GatedWorld(2, 2);
  o.provider = GangProvider::kScheduler;
  for (Pod& pod : o.pods) pod.gated = false;
  o.pods[0].node = "node";
  o.pods[1].waiting_reason = "Unschedulable";
  o.pods[1].waiting_message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu";
  Settle(o, kT0 + kSettlePeriod);
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kUnschedulable);
  Settle(o, kT0 + o.job.gang_timeout);
  EXPECT_TRUE(o.pods.empty());
  EXPECT_NE(o.status.ledger.withdrawn_for.find("3 Insufficient nvidia.com/gpu"), std::string::npos);
  EXPECT_NE(ConditionOf(o, ConditionType::kScheduled).message.find("only 1/2 pods had a node: enable gangs"),
            std::string::npos);
}

// The same gang when `auto` has chosen the scheduler.
TEST(Gang, AutoLeavesASchedulerThatPlacesAPart) {
  Observed o = GatedWorld(2, 2);
  o.provider = GangProvider::kScheduler;
  o.native_on_trial = true;
  for (Pod& pod : o.pods) pod.gated = false;
  EXPECT_FALSE(IsTorn(o, kT0 + o.job.gang_timeout)) << "it holds nothing";
  o.pods[0].node = "node";
  o.pods[0].placed = kT0 + seconds(1);
  o.pods[1].waiting_reason = "Unschedulable";
  EXPECT_FALSE(IsTorn(o, kT0 + seconds(2))) << "it may be binding the others";
  EXPECT_TRUE(IsTorn(o, kT0 + o.job.gang_timeout));
  Observed whole = o;
  whole.pods[1].node = "other";
  whole.pods[1].placed = kT0 + seconds(1);
  EXPECT_FALSE(IsTorn(whole, kT0 + o.job.gang_timeout));
  Observed gate = o;
  gate.provider = GangProvider::kGate;
  EXPECT_FALSE(IsTorn(gate, kT0 + o.job.gang_timeout));
  Settle(o, kT0 + o.job.gang_timeout);
  EXPECT_NE(ConditionOf(o, ConditionType::kScheduled)
                .message.find("only 1/2 pods had a node: gangs are not enabled in the scheduler, so auto"),
            std::string::npos)
      << ConditionOf(o, ConditionType::kScheduled).message;
}

// A gang of two of a scheduler, which says this of both pods.
Observed Unschedulable(const std::string& message) {
  Observed o = GatedWorld(2, 2);
  o.provider = GangProvider::kScheduler;
  for (Pod& pod : o.pods) {
    pod.gated = false;
    pod.waiting_reason = "Unschedulable";
    pod.waiting_message = message;
  }
  return o;
}

TEST(Gang, WithoutAnyNodeSaysNothingAboutItsScheduler) {
  Observed o = Unschedulable("0/3 nodes are available: 3 Insufficient nvidia.com/gpu");
  Observed at_once = o;
  at_once.all_at_once = true;
  Settle(at_once, kT0 + o.job.gang_timeout);
  EXPECT_EQ(at_once.pods.size(), 2U) << "it holds nothing";
  EXPECT_EQ(ConditionOf(at_once, ConditionType::kScheduled).reason, Reason::kUnschedulable);
  Settle(o, kT0 + o.job.gang_timeout);
  EXPECT_TRUE(o.pods.empty()) << "it may hold nodes that no pod shows";
  EXPECT_EQ(o.status.ledger.withdrawn_for.find("enable gangs"), std::string::npos);
}

TEST(Gang, ReportsWhatTheNodesLackRatherThanAnIncompleteGang) {
  Observed o = Unschedulable("minCount (2) cannot be satisfied: 0 scheduled, 1 remaining");
  o.pods[1].waiting_message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu";
  Settle(o, kT0 + kSettlePeriod);
  EXPECT_NE(ConditionOf(o, ConditionType::kScheduled).message.find("3 Insufficient nvidia.com/gpu"),
            std::string::npos);
}

TEST(Gang, WithoutAProviderNothingIsWithdrawn) {
  Observed o = GatedWorld(2, 2);
  o.provider = GangProvider::kNone;
  for (Pod& pod : o.pods) pod.gated = false;
  o.pods[0].node = "node";
  o.pods[0].phase = PodPhase::kRunning;
  Settle(o, kT0 + 10 * o.job.gang_timeout);
  EXPECT_EQ(o.status.ledger.attempt, 1);
}

TEST(Gang, AnElasticJobStartsSmallerAfterTheTimeout) {
  Observed o = GatedWorld(4, 2, true);
  Settle(o, kT0);
  EXPECT_FALSE(o.status.ledger.placed);
  const Time late = kT0 + o.job.gang_timeout;
  EXPECT_EQ(All<ReserveRoom>(Decide(o, late)), (std::vector<ReserveRoom>{{1, {0, 1}}}));
  for (int i = 0; i < 3; ++i) Obey(o, Decide(o, late), late);  // reserve, prepare, create
  EXPECT_EQ(o.pods.size(), 2U);
  o.fit.room = 0;
  Settle(o, late);
  EXPECT_TRUE(o.status.ledger.placed);
  EXPECT_TRUE(o.status.ledger.ready_since.has_value());
  EXPECT_EQ(o.status.ledger.attempt, 1);
}

TEST(Gang, AnElasticJobBelowItsMinimumWaits) {
  Observed o = GatedWorld(4, 1, true);
  Settle(o, kT0);
  Settle(o, kT0 + o.job.gang_timeout);
  EXPECT_TRUE(o.pods.empty());
  EXPECT_EQ(o.status.ledger.withdrawals, 0);
}

TEST(Gang, ARunningJobBelowItsMinimumIsWithdrawnAfterTheTimeout) {
  Observed o = RunningWorld(4);
  o.job.min = 3;
  o.provider = GangProvider::kGate;
  o.prepared = PrepareGang{1, 4, 3};
  o.fit = {0, "needs 8 x nvidia.com/gpu on 2 nodes; 0 nodes have room"};
  o.pods.resize(2);
  Settle(o, kT0);
  EXPECT_FALSE(o.status.ledger.placed);
  EXPECT_EQ(Settle(o, kT0 + seconds(1)).requeue_at, kT0 + o.job.gang_timeout);
  Settle(o, kT0 + o.job.gang_timeout);
  EXPECT_EQ(o.status.ledger.withdrawals, 1);
  EXPECT_TRUE(o.pods.empty());
}

TEST(Gang, AnElasticJobThatRanContinuesWhenItsMinimumHasRoom) {
  Observed o = RunningWorld(4);
  o.job.min = 3;
  o.provider = GangProvider::kGate;
  o.fit = {1, "needs 8 x nvidia.com/gpu on 2 nodes; 1 node has room"};
  o.pods.resize(2);
  for (int i = 0; i < 10 && o.pods.size() < 3; ++i) Obey(o, Decide(o, kT0), kT0);
  EXPECT_EQ(o.pods.size(), 3U);
}

TEST(Gang, UnscheduledPodsAreRecreatedWhenAnExclusionEnds) {
  Observed o = RunningWorld(3);
  o.job.min = 2;
  o.status.ledger.excluded = {{"gpu-7", "NodeUnreachable", kT0 + seconds(60)}};
  Pod& waiting = o.pods[2];
  waiting.node.clear();
  waiting.phase = PodPhase::kPending;
  waiting.waiting_reason = "Unschedulable";
  Settle(o, kT0);
  const Time over = kT0 + seconds(60);
  Obey(o, Decide(o, over), over);  // written first
  EXPECT_TRUE(o.status.ledger.excluded.empty());
  EXPECT_EQ(o.status.ledger.restarts.total, 0);
  const Decision ended = Decide(o, over);
  ASSERT_EQ(All<DeletePod>(ended).size(), 1U);
  EXPECT_EQ(All<DeletePod>(ended)[0].name, "job-1-2");
  Obey(o, ended, over);
  const auto created = All<CreatePod>(Decide(o, kT0 + seconds(60)));
  ASSERT_EQ(created.size(), 1U);
  EXPECT_TRUE(created[0].excluded_nodes.empty());
  Settle(o, over);
  EXPECT_EQ(o.pods.size(), 3U);
}

TEST(Gang, ReplacementsJoinARunningGangOneByOne) {
  Observed o = RunningWorld(4);
  o.provider = GangProvider::kGate;
  o.pods.resize(2);
  o.fit = {1, "one only"};
  EXPECT_EQ(All<ReserveRoom>(Decide(o, kT0)), (std::vector<ReserveRoom>{{1, {2}}}));
  Obey(o, Decide(o, kT0), kT0);
  // No gate: the gang runs without the others.
  const auto created = All<CreatePod>(Decide(o, kT0));
  ASSERT_EQ(created.size(), 1U);
  EXPECT_EQ(created[0].name, "job-1-2");
  EXPECT_FALSE(created[0].gated);
}

TEST(Gang, DeletedSupportingObjectsAreRecreated) {
  Observed o = RunningWorld(2);
  o.prepared.reset();
  EXPECT_EQ(All<PrepareGang>(Decide(o, kT0)).size(), 1U);
}

TEST(Gang, ThousandsOfPodsAreDecidedQuickly) {
  Observed o = RunningWorld(2);
  o.job.replicas = o.job.max = 2048;
  Settle(o, kT0);
  ASSERT_EQ(o.pods.size(), 2048U);
  for (const Pod& pod : o.pods) o.report->live_pods.push_back(pod.name);
  Settle(o, kT0 + seconds(60));
  EXPECT_EQ(o.status.display.ready_replicas, 2048);
}

// ---- refusals

TEST(Refusal, TheServersMessageDeterminesTheKind) {
  const auto kind = [](const char* message) { return ClassifyRefusal({Code::kForbidden, message}); };
  EXPECT_EQ(kind("pods \"x\" is forbidden: exceeded quota: gpus, requested: a=1, used: a=8, limited: a=8"),
            RefusalKind::kQuota);
  EXPECT_EQ(kind("pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilege..."),
            RefusalKind::kPodSecurity);
  EXPECT_EQ(kind("admission webhook \"a.b\" denied the request: no"), RefusalKind::kAdmission);
  EXPECT_EQ(kind("namespace x because it is being terminated"), RefusalKind::kNamespaceEnding);
  EXPECT_EQ(kind("User \"x\" cannot create resource \"pods\""), RefusalKind::kForbidden);
  EXPECT_EQ(ClassifyRefusal({Code::kInvalid, "spec.x: bad"}), RefusalKind::kInvalid);
  for (const Code code : {Code::kAmbiguous, Code::kUnavailable, Code::kForbidden})
    EXPECT_EQ(ClassifyRefusal({code,
                               "POST pods ml/: Internal error occurred: failed calling webhook \"a.b\": "
                               "failed to call webhook: connection refused"}),
              RefusalKind::kAdmission);
  EXPECT_EQ(ClassifyRefusal({Code::kExhausted, "no ports"}), RefusalKind::kNoHostPorts);
  EXPECT_EQ(ClassifyRefusal({Code::kUnavailable, "exceeded quota"}), std::nullopt);
}

TEST(Refusal, NoPodIsRequestedDuringThePause) {
  Observed o = NewWorld(2);
  Obey(o, Decide(o, kT0), kT0);
  o.order = SetGang{1, 1, 8, 2, false};
  o.refusal = Refusal{RefusalKind::kQuota, "pod job-1-0: exceeded quota: gpus", kT0, kT0 + seconds(4)};
  const Decision wait = Settle(o, kT0 + kDisplayInterval);
  EXPECT_EQ(wait.requeue_at, kT0 + seconds(4));
  const Condition& admitted = ConditionOf(o, ConditionType::kAdmitted);
  EXPECT_EQ(admitted.truth, Truth::kFalse);
  EXPECT_EQ(admitted.reason, Reason::kQuotaExceeded);
  EXPECT_NE(admitted.message.find("exceeded quota: gpus"), std::string::npos);
  EXPECT_NE(admitted.message.find("ResourceQuota"), std::string::npos);  // the remedy
  EXPECT_EQ(All<PrepareGang>(Decide(o, kT0 + seconds(4))).size(), 1U);
  o.refusal.reset();
  Settle(o, kT0 + seconds(4));
  EXPECT_EQ(ConditionOf(o, ConditionType::kAdmitted).truth, Truth::kTrue);
}

TEST(Refusal, APredictedRefusalIsNotTried) {
  Observed o = NewWorld(2);
  o.preflight = Refusal{RefusalKind::kPodSecurity, "hostNetwork is not allowed at level baseline", kT0, kT0};
  const Decision wait = Settle(o, kT0 + 2 * o.job.gang_timeout);
  EXPECT_FALSE(wait.requeue_at.has_value());
  EXPECT_TRUE(o.pods.empty());
  EXPECT_EQ(ConditionOf(o, ConditionType::kAdmitted).reason, Reason::kPodSecurity);
  EXPECT_EQ(o.status.ledger.withdrawals, 0);
}

// Returns a gang of a scheduler that has not looked at its pods.
Observed IgnoredWorld(int32_t size) {
  Observed o = NewWorld(size);
  o.job.in_place = false;
  o.provider = GangProvider::kScheduler;
  for (int i = 0; i < 3; ++i) Obey(o, Decide(o, kT0), kT0);
  for (Pod& pod : o.pods) {
    pod.created = kT0;
    pod.node.clear();
    pod.phase = PodPhase::kPending;
    pod.awaits_scheduler = "volcano";
  }
  EXPECT_EQ(o.pods.size(), static_cast<size_t>(size));
  return o;
}

TEST(Gang, ASchedulerThatDoesNotRunIsNamed) {
  Observed o = IgnoredWorld(4);
  Settle(o, kT0 + seconds(9));
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kWaitingForPods);
  const Decision waits = Decide(o, kT0 + seconds(9));
  ASSERT_TRUE(waits.requeue_at.has_value());
  EXPECT_EQ(*waits.requeue_at, kT0 + kSchedulerGuard) << "nothing else wakes the job then";
  Settle(o, kT0 + kSchedulerGuard);
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kNoScheduler);
  EXPECT_NE(ConditionOf(o, ConditionType::kScheduled).message.find("start the scheduler volcano"),
            std::string::npos);
  // Withdrawn like any gang without nodes, so that it chooses its scheduler again.
  Observed late = o;
  Settle(late, kT0 + o.job.gang_timeout);
  EXPECT_EQ(late.status.ledger.attempt, 2);
  EXPECT_NE(late.status.ledger.withdrawn_for.find("volcano"), std::string::npos);
  // The scheduler starts.
  for (Pod& pod : o.pods) {
    pod.awaits_scheduler.clear();
    pod.node = "node";
    pod.phase = PodPhase::kRunning;
  }
  Settle(o, kT0 + seconds(20));
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kAllPodsPlaced);
}

TEST(Gang, AQueueThatMayNotExistIsNamed) {
  Observed o = IgnoredWorld(4);
  o.job.gang_queue = "team-a";
  Settle(o, kT0 + kSchedulerGuard);
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kNoScheduler);
  EXPECT_TRUE(ConditionOf(o, ConditionType::kScheduled)
                  .message.ends_with("; if it runs, create its queue team-a, or correct scheduling.queue"));
  Observed other = IgnoredWorld(4);
  other.job.gang_queue = "team-a";
  other.job.gang = GangMode::kCoscheduling;  // which has no queues
  Settle(other, kT0 + kSchedulerGuard);
  EXPECT_EQ(ConditionOf(other, ConditionType::kScheduled).message.find("team-a"), std::string::npos);
}

TEST(Gang, ASchedulerThatReportsAboutOnePodRuns) {
  Observed o = IgnoredWorld(4);
  o.pods[2].awaits_scheduler.clear();
  o.pods[2].waiting_reason = "Schedulable";  // Volcano: this one would fit
  Settle(o, kT0 + seconds(60));
  EXPECT_EQ(ConditionOf(o, ConditionType::kScheduled).reason, Reason::kWaitingForPods);
}

TEST(Gang, AnIncompleteGangMayBeIgnored) {
  Observed o = IgnoredWorld(4);
  o.refusal = Refusal{RefusalKind::kQuota, "exceeded quota: gpus", kT0, kT0 + seconds(100'000)};
  o.pods.resize(3);
  const Placement p = PlacementOf(o, o.status.ledger);
  EXPECT_EQ(Ignored(p, kT0 + seconds(60)), nullptr);
}

TEST(Refusal, AGangThatAQuotaKeepsIncompleteIsWithdrawn) {
  Observed o = GatedWorld(4, 4);
  o.pods.resize(2);
  o.refusal = Refusal{RefusalKind::kQuota, "exceeded quota: gpus", kT0, kT0 + seconds(100'000)};
  Settle(o, kT0 + o.job.gang_timeout);
  EXPECT_TRUE(o.pods.empty());
  EXPECT_EQ(o.status.ledger.withdrawn_for, "exceeded quota: gpus");
}

TEST(Reasons, EveryReasonHasConditionsAndAnExplanation) {
  EXPECT_EQ(AllReasons().size(), static_cast<size_t>(Reason::kPeersUnreachable));
  for (const ReasonText& row : AllReasons()) {
    EXPECT_STRNE(row.conditions, "") << ReasonName(row.reason);
    EXPECT_STRNE(row.text, "") << ReasonName(row.reason);
  }
}

// Two leaders at the same time, one of which was deposed, chose different sizes.
TEST(Placement, PodsOfAGangOfAnotherSizeAreReplaced) {
  Observed o = RunningWorld(4, false);
  o.prepared->size = 2;
  EXPECT_EQ(Written(Decide(o, kT0)).attempt, 2);
  o.pods.clear();
  o.status.ledger.placed = false;
  o.status.ledger.ready_since.reset();
  const auto prepared = All<PrepareGang>(Decide(o, kT0));
  ASSERT_EQ(prepared.size(), 1U) << "there is no pod yet";
  EXPECT_EQ(prepared[0].size, 4);
}

}  // namespace
}  // namespace ringmaster::core
