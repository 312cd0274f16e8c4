// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "tests/conformance/harness.h"

namespace ringmaster::conformance {

using control::Kind;
using control::Revision;
using core::PodPhase;

void BackendConformance::SetUp() {
  harness_ = GetParam()();
  Use(harness_->Submit("job"));
}

void BackendConformance::Use(const control::Key& key) {
  key_ = key;
  ASSERT_TRUE(harness_->Await([&] { return backend().Observe(key_).has_value(); }));
  uid_ = backend().Observe(key_)->observed.job.uid;
}

std::optional<core::Pod> BackendConformance::PodOf(const std::string& name) {
  const auto snapshot = backend().Observe(key_);
  if (!snapshot) return std::nullopt;
  for (const core::Pod& pod : snapshot->observed.pods)
    if (pod.name == name) return pod;
  return std::nullopt;
}

Result<Revision> BackendConformance::Write(core::Action action, std::optional<Revision> if_revision) {
  // Shared: a late answer must not write into this stack frame.
  struct Answer {
    std::mutex mutex;
    std::optional<Result<Revision>> result;
  };
  auto answer = std::make_shared<Answer>();
  backend().Execute({key_, uid_, std::move(action), if_revision}, [answer](Result<Revision> result) {
    std::lock_guard lock(answer->mutex);
    answer->result = std::move(result);
  });
  const bool answered = harness_->Await([&] {
    std::lock_guard lock(answer->mutex);
    return answer->result.has_value();
  });
  if (!answered) return Error{Code::kDeadlineExceeded, "no answer"};
  std::lock_guard lock(answer->mutex);
  return *answer->result;
}

Result<Revision> BackendConformance::Create(int32_t rank, bool gated) {
  return Write(core::CreatePod{Name(rank), 1, rank, 5, gated});
}

Result<Revision> BackendConformance::Delete(const std::string& name, Duration grace) {
  const auto pod = PodOf(name);
  return Write(core::DeletePod{name, pod ? pod->uid : "none", grace});
}

std::optional<core::Workload> BackendConformance::WorkloadOf() {
  const auto snapshot = backend().Observe(key_);
  if (!snapshot || !snapshot->observed.quota || snapshot->observed.quota->workloads.empty())
    return std::nullopt;
  return snapshot->observed.quota->workloads.front();
}

void BackendConformance::Change(core::Action action) {
  const auto result = Write(std::move(action));
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_TRUE(harness_->Await([&] { return backend().Seen(Kind::kWorkload, key_) >= *result; }));
}

bool BackendConformance::AwaitPod(const std::string& name, PodPhase phase) {
  return harness_->Await([&] {
    const auto pod = PodOf(name);
    return pod && pod->phase == phase;
  });
}

bool BackendConformance::AwaitNoPod(const std::string& name) {
  return harness_->Await([&] { return !PodOf(name); });
}

namespace {

TEST_P(BackendConformance, ACreatedPodRuns) {
  ASSERT_TRUE(Create(kRuns).ok());
  ASSERT_TRUE(AwaitPod(Name(kRuns), PodPhase::kRunning));
  const auto pod = PodOf(Name(kRuns));
  EXPECT_EQ(pod->attempt, 1);
  EXPECT_EQ(pod->rank, kRuns);
  EXPECT_FALSE(pod->uid.empty());
  EXPECT_FALSE(pod->deleting());
}

TEST_P(BackendConformance, CreatingTwiceIsAlreadyExists) {
  ASSERT_TRUE(Create(kRuns).ok());
  const auto again = Create(kRuns);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Code::kAlreadyExists) << again.error().message;
}

TEST_P(BackendConformance, DeletingAMissingPodIsNotFound) {
  const auto result = Delete("job-1-99", seconds(1));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kNotFound) << result.error().message;
}

TEST_P(BackendConformance, APodIsUntrackedOnce) {
  ASSERT_TRUE(Create(kRuns).ok());
  ASSERT_TRUE(AwaitPod(Name(kRuns), PodPhase::kRunning));
  const std::string uid = PodOf(Name(kRuns))->uid;
  const auto another = Write(core::UntrackPod{Name(kRuns), "another-uid"});
  ASSERT_FALSE(another.ok());
  EXPECT_EQ(another.error().code, Code::kConflict) << another.error().message;
  const auto untracked = Write(core::UntrackPod{Name(kRuns), uid});
  ASSERT_TRUE(untracked.ok()) << untracked.error().message;
  ASSERT_TRUE(harness_->Await([&] { return backend().Seen(Kind::kPod, key_) >= *untracked; }));
  EXPECT_FALSE(PodOf(Name(kRuns))->tracked);
  EXPECT_TRUE(Write(core::UntrackPod{Name(kRuns), uid}).ok()) << "again, as after a lost reply";
  EXPECT_TRUE(Write(core::UntrackPod{"job-1-99", "x"}).ok()) << "a pod that is gone";
}

TEST_P(BackendConformance, DeletingWithAnotherUidIsAConflict) {
  ASSERT_TRUE(Create(kRuns).ok());
  ASSERT_TRUE(AwaitPod(Name(kRuns), PodPhase::kRunning));
  const auto result = Write(core::DeletePod{Name(kRuns), "another-uid", seconds(1)});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kConflict) << result.error().message;
  EXPECT_EQ(PodOf(Name(kRuns))->phase, PodPhase::kRunning);
}

TEST_P(BackendConformance, AStaleStatusWriteIsAConflict) {
  const Revision first = backend().Observe(key_)->job_revision;
  core::SetStatus set;
  set.status.ledger.attempt = 1;
  const auto written = Write(set, first);
  ASSERT_TRUE(written.ok()) << written.error().message;
  set.status.ledger.attempt = 2;
  const auto stale = Write(set, first);
  ASSERT_FALSE(stale.ok());
  EXPECT_EQ(stale.error().code, Code::kConflict) << stale.error().message;
  ASSERT_TRUE(harness_->Await([&] { return backend().Seen(Kind::kJob, key_) >= *written; }));
  EXPECT_EQ(backend().Observe(key_)->observed.status.ledger.attempt, 1);
  EXPECT_GT(backend().Observe(key_)->job_revision, first);
}

TEST_P(BackendConformance, AWriteWithAnotherJobUidIsNotFound) {
  uid_ = "uid-of-a-job-that-was";
  for (const core::Action& action : std::vector<core::Action>{
           core::CreatePod{Name(kRuns), 1, kRuns}, core::SetStatus{},
           core::DeletePod{Name(kRuns), "x", seconds(1)}, core::TryPods{1, 1}, core::PrepareGang{1, 1, 1}}) {
    const auto result = Write(action, backend().Observe(key_)->job_revision);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kNotFound) << result.error().message;
  }
  EXPECT_TRUE(backend().Observe(key_)->observed.pods.empty());
}

TEST_P(BackendConformance, AViewAtTheRevisionOfAWriteIncludesIt) {
  const auto created = Create(kRuns);
  ASSERT_TRUE(created.ok());
  ASSERT_GT(*created, 0U);
  ASSERT_TRUE(harness_->Await([&] { return backend().Seen(Kind::kPod, key_) >= *created; }));
  EXPECT_TRUE(PodOf(Name(kRuns)).has_value());

  const auto deleted = Delete(Name(kRuns), seconds(30));
  ASSERT_TRUE(deleted.ok());
  ASSERT_TRUE(harness_->Await([&] { return backend().Seen(Kind::kPod, key_) >= *deleted; }));
  const auto pod = PodOf(Name(kRuns));
  EXPECT_TRUE(!pod || pod->deleting());
}

TEST_P(BackendConformance, ALiveReadIncludesEarlierWrites) {
  ASSERT_TRUE(Create(kRuns).ok());
  auto done = std::make_shared<std::atomic<bool>>(false);
  backend().ReadThrough(key_, [done](Status status) { *done = status.ok(); });
  ASSERT_TRUE(harness_->Await([&] { return done->load(); }));
  EXPECT_TRUE(PodOf(Name(kRuns)).has_value());
}

TEST_P(BackendConformance, EveryChangeIsFollowedByANotification) {
  struct Seen {
    std::mutex mutex;
    std::set<std::pair<std::string, PodPhase>> phases;
    int64_t attempt = 0;
    bool ordered = false;
    bool gone = false;
  };
  auto seen = std::make_shared<Seen>();
  // Only observations made inside a notification count.
  backend().Subscribe([this, seen](const control::Key& key) {
    const auto snapshot = backend().Observe(key);
    std::lock_guard lock(seen->mutex);
    if (!snapshot) return;
    for (const core::Pod& pod : snapshot->observed.pods) seen->phases.emplace(pod.name, pod.phase);
    seen->gone = snapshot->observed.pods.empty();
    seen->attempt = snapshot->observed.status.ledger.attempt;
    seen->ordered = snapshot->observed.order.has_value();
  });
  const auto has = [&](int32_t rank, PodPhase phase) {
    std::lock_guard lock(seen->mutex);
    return seen->phases.contains({Name(rank), phase});
  };
  ASSERT_TRUE(Create(kRuns).ok());
  EXPECT_TRUE(harness_->Await([&] { return has(kRuns, PodPhase::kRunning); }));
  ASSERT_TRUE(Create(kFails).ok());
  EXPECT_TRUE(harness_->Await([&] { return has(kFails, PodPhase::kFailed); }));
  core::SetStatus set;
  set.status.ledger.attempt = 7;
  ASSERT_TRUE(Write(set, backend().Observe(key_)->job_revision).ok());
  EXPECT_TRUE(harness_->Await([&] {
    std::lock_guard lock(seen->mutex);
    return seen->attempt == 7;
  }));
  ASSERT_TRUE(Write(core::SetGang{1, 1, 2, 2, false}).ok());
  EXPECT_TRUE(harness_->Await([&] {
    std::lock_guard lock(seen->mutex);
    return seen->ordered;
  }));
  ASSERT_TRUE(Delete(Name(kRuns), Duration{0}).ok());
  ASSERT_TRUE(Delete(Name(kFails), Duration{0}).ok());
  EXPECT_TRUE(harness_->Await([&] {
    std::lock_guard lock(seen->mutex);
    return seen->gone;
  }));
}

TEST_P(BackendConformance, ExitCodeAndTerminationMessageAreReported) {
  ASSERT_TRUE(Create(kFails).ok());
  ASSERT_TRUE(AwaitPod(Name(kFails), PodPhase::kFailed));
  const auto pod = PodOf(Name(kFails));
  EXPECT_EQ(pod->exit_code, 7);
  EXPECT_EQ(pod->message, kTerminationMessage);
  EXPECT_TRUE(pod->ended.has_value());
}

TEST_P(BackendConformance, SuccessIsReported) {
  ASSERT_TRUE(Create(kSucceeds).ok());
  ASSERT_TRUE(AwaitPod(Name(kSucceeds), PodPhase::kSucceeded));
  EXPECT_EQ(PodOf(Name(kSucceeds))->exit_code, 0);
}

TEST_P(BackendConformance, ASignalIsExitCode128PlusItsNumber) {
  ASSERT_TRUE(Create(kCrashes).ok());
  ASSERT_TRUE(AwaitPod(Name(kCrashes), PodPhase::kFailed));
  EXPECT_EQ(PodOf(Name(kCrashes))->exit_code, 137);
}

TEST_P(BackendConformance, ADeletedPodEnds) {
  ASSERT_TRUE(Create(kRuns).ok());
  ASSERT_TRUE(AwaitPod(Name(kRuns), PodPhase::kRunning));
  ASSERT_TRUE(Delete(Name(kRuns), seconds(600)).ok());  // it ends long before its grace period
  EXPECT_TRUE(AwaitNoPod(Name(kRuns)));
}

TEST_P(BackendConformance, APodThatIgnoresSigtermEndsAfterItsGrace) {
  ASSERT_TRUE(Create(kIgnoresSigterm).ok());
  ASSERT_TRUE(AwaitPod(Name(kIgnoresSigterm), PodPhase::kRunning));
  ASSERT_TRUE(Delete(Name(kIgnoresSigterm), milliseconds(300)).ok());
  EXPECT_TRUE(AwaitNoPod(Name(kIgnoresSigterm)));
}

TEST_P(BackendConformance, ForceShortensAGracePeriod) {
  ASSERT_TRUE(Create(kIgnoresSigterm).ok());
  ASSERT_TRUE(AwaitPod(Name(kIgnoresSigterm), PodPhase::kRunning));
  const std::string uid = PodOf(Name(kIgnoresSigterm))->uid;
  ASSERT_TRUE(Delete(Name(kIgnoresSigterm), seconds(600)).ok());
  // The program may end before it ignores SIGTERM.
  const auto forced = Write(core::DeletePod{Name(kIgnoresSigterm), uid, Duration{0}});
  EXPECT_TRUE(forced.ok() || forced.error().code == Code::kNotFound) << forced.error().message;
  EXPECT_TRUE(AwaitNoPod(Name(kIgnoresSigterm)));
}

TEST_P(BackendConformance, AnEndedPodKeepsItsNameUntilItIsDeleted) {
  ASSERT_TRUE(Create(kFails).ok());
  ASSERT_TRUE(AwaitPod(Name(kFails), PodPhase::kFailed));
  const std::string first = PodOf(Name(kFails))->uid;
  ASSERT_EQ(Create(kFails).error().code, Code::kAlreadyExists);
  const auto deleted = Delete(Name(kFails), seconds(30));
  ASSERT_TRUE(deleted.ok());
  ASSERT_TRUE(AwaitNoPod(Name(kFails)));
  ASSERT_TRUE(Create(kFails).ok());
  ASSERT_TRUE(AwaitPod(Name(kFails), PodPhase::kFailed));
  EXPECT_NE(PodOf(Name(kFails))->uid, first);
}

TEST_P(BackendConformance, PodsAreSorted) {
  for (const int32_t rank : {kIgnoresSigterm, kRuns, kCrashes, kSucceeds}) ASSERT_TRUE(Create(rank).ok());
  ASSERT_TRUE(harness_->Await([&] { return backend().Observe(key_)->observed.pods.size() == 4; }));
  int32_t last = -1;
  const auto snapshot = backend().Observe(key_);
  for (const core::Pod& pod : snapshot->observed.pods) {
    EXPECT_GT(pod.rank, last);
    last = pod.rank;
  }
}

TEST_P(BackendConformance, TheOrderToTheGangIsInTheView) {
  const core::SetGang order{1, 2, 8, 4, false};
  ASSERT_TRUE(Write(order).ok());
  EXPECT_EQ(backend().Observe(key_)->observed.order, order);
}

TEST_P(BackendConformance, PrepareGangIsInTheViewAtOnce) {
  EXPECT_FALSE(backend().Observe(key_)->observed.prepared.has_value());
  const core::PrepareGang prepare{1, 4, 2};
  ASSERT_TRUE(Write(prepare).ok());
  EXPECT_EQ(backend().Observe(key_)->observed.prepared, prepare);
  ASSERT_TRUE(Write(prepare).ok());  // idempotent
  const core::PrepareGang larger{1, 6, 2};
  ASSERT_TRUE(Write(larger).ok());
  EXPECT_EQ(backend().Observe(key_)->observed.prepared, larger);
}

TEST_P(BackendConformance, TryPodsCreatesNothing) {
  ASSERT_TRUE(Write(core::TryPods{1, 2}).ok());
  const auto snapshot = backend().Observe(key_);
  EXPECT_FALSE(snapshot->observed.untried);
  EXPECT_FALSE(snapshot->observed.prepared.has_value());
  EXPECT_TRUE(snapshot->observed.pods.empty());
}

TEST_P(BackendConformance, ADeletedSupportingObjectIsDetectedAndRecreated) {
  const core::PrepareGang prepare{1, 4, 2};
  ASSERT_TRUE(Write(prepare).ok());
  if (!harness_->DamageSupport(key_)) GTEST_SKIP() << "this backend has no supporting objects";
  EXPECT_TRUE(harness_->Await([&] { return !backend().Observe(key_)->observed.prepared.has_value(); }));
  ASSERT_TRUE(Write(prepare).ok());
  EXPECT_EQ(backend().Observe(key_)->observed.prepared, prepare);
}

TEST_P(BackendConformance, AGatedPodWaitsForItsRelease) {
  if (!harness_->HasGates()) GTEST_SKIP() << "this backend has no scheduling gates";
  harness_->DeleteJob(key_);
  ASSERT_TRUE(harness_->Await([&] { return !backend().Observe(key_).has_value(); }));
  Use(harness_->SubmitForGate("job"));
  core::SetStatus set;
  set.status.ledger.attempt = 1;
  ASSERT_TRUE(Write(set, backend().Observe(key_)->job_revision).ok());
  ASSERT_TRUE(harness_->Await([&] { return backend().Observe(key_)->observed.status.ledger.attempt == 1; }));
  const auto reserved = Write(core::ReserveRoom{1, {kRuns}});
  ASSERT_TRUE(reserved.ok()) << reserved.error().message;
  ASSERT_TRUE(Create(kRuns, true).ok());
  ASSERT_TRUE(AwaitPod(Name(kRuns), PodPhase::kPending));
  const core::Pod pod = *PodOf(Name(kRuns));
  EXPECT_TRUE(pod.gated);
  EXPECT_FALSE(pod.bound());
  const auto released = Write(core::ReleaseGang{1, {{pod.name, pod.uid}}});
  ASSERT_TRUE(released.ok()) << released.error().message;
  ASSERT_TRUE(harness_->Await([&] { return backend().Seen(Kind::kPod, key_) >= *released; }));
  EXPECT_FALSE(PodOf(Name(kRuns))->gated);
  ASSERT_TRUE(AwaitPod(Name(kRuns), PodPhase::kRunning));
  EXPECT_TRUE(PodOf(Name(kRuns))->bound());
  // Again, as after a lost reply.
  EXPECT_TRUE(Write(core::ReleaseGang{1, {{pod.name, pod.uid}}}).ok());
}

TEST_P(BackendConformance, ADeletedGatedPodIsGone) {
  if (!harness_->HasGates()) GTEST_SKIP() << "this backend has no scheduling gates";
  ASSERT_TRUE(Create(kRuns, true).ok());
  ASSERT_TRUE(AwaitPod(Name(kRuns), PodPhase::kPending));
  ASSERT_TRUE(Delete(Name(kRuns), seconds(600)).ok());
  EXPECT_TRUE(AwaitNoPod(Name(kRuns)));
}

TEST_P(BackendConformance, AReleaseChecksTheUids) {
  ASSERT_TRUE(Create(kRuns, true).ok());
  ASSERT_TRUE(harness_->Await([&] { return PodOf(Name(kRuns)).has_value(); }));
  const auto another = Write(core::ReleaseGang{1, {{Name(kRuns), "another-uid"}}});
  ASSERT_FALSE(another.ok());
  EXPECT_EQ(another.error().code, Code::kConflict) << another.error().message;
  const auto missing = Write(core::ReleaseGang{1, {{"job-1-99", "x"}}});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kNotFound) << missing.error().message;
}

TEST_P(BackendConformance, AWorkloadLives) {
  if (!harness_->Enqueue(key_, "queue")) GTEST_SKIP() << "this backend has no Kueue";
  ASSERT_TRUE(harness_->Await([&] {
    const auto quota = backend().Observe(key_)->observed.quota;
    return quota && quota->api == core::Quota::Api::kRead && quota->queue == "queue";
  }));
  core::MakeWorkload make;
  make.queue = "queue";
  make.pod_sets = {{core::kWorkerSet, 3, 2}};
  Change(make);
  const core::Workload made = *WorkloadOf();
  EXPECT_EQ(made.pod_sets, make.pod_sets);
  EXPECT_EQ(made.queue, "queue");
  EXPECT_TRUE(made.held && made.active);
  EXPECT_FALSE(made.outdated || made.reserved || made.admitted || made.evicted || made.finished);
  const auto again = Write(make);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Code::kAlreadyExists) << again.error().message;

  // A change names the revision that the decision saw.
  make.name = made.name;
  make.uid = made.uid;
  make.revision = made.revision;
  make.queue = "other";
  Change(make);
  EXPECT_EQ(WorkloadOf()->queue, "other");
  const auto outdated = Write(make);
  ASSERT_FALSE(outdated.ok());
  EXPECT_EQ(outdated.error().code, Code::kConflict) << outdated.error().message;

  harness_->Admit(key_);
  ASSERT_TRUE(harness_->Await([&] { return WorkloadOf()->admitted; }));
  EXPECT_EQ(backend().Observe(key_)->observed.job.granted, 3);
  const auto change = [&](core::SetWorkloadStatus::Change what) {
    const core::Workload now = *WorkloadOf();
    return core::SetWorkloadStatus{now.name, now.uid, now.revision, what};
  };
  core::SetWorkloadStatus ready = change(core::SetWorkloadStatus::Change::kReport);
  ready.pods_ready = core::PodsReady::kStarted;
  Change(ready);
  EXPECT_EQ(WorkloadOf()->pods_ready, core::PodsReady::kStarted);
  EXPECT_TRUE(WorkloadOf()->admitted) << "what Kueue has written stays";
  core::SetWorkloadStatus give = change(core::SetWorkloadStatus::Change::kGiveBack);
  give.unused = {{core::kWorkerSet, 1}};
  Change(give);
  EXPECT_EQ(core::WorkersGranted({}, *WorkloadOf()), 2);
  core::SetWorkloadStatus clear = change(core::SetWorkloadStatus::Change::kClear);
  clear.reason = "Preempted";
  Change(clear);
  EXPECT_FALSE(WorkloadOf()->reserved || WorkloadOf()->admitted);
  EXPECT_EQ(WorkloadOf()->pods_ready, core::PodsReady::kWaitForStart);
  EXPECT_FALSE(backend().Observe(key_)->observed.job.granted);
  core::SetWorkloadStatus finish = change(core::SetWorkloadStatus::Change::kFinish);
  finish.reason = "Succeeded";
  Change(finish);
  EXPECT_TRUE(WorkloadOf()->finished);

  // It is held until it is released.
  Change(core::DeleteWorkload{made.name, made.uid});
  EXPECT_TRUE(WorkloadOf()->deleting);
  const auto another = Write(core::ReleaseWorkload{made.name, "another-uid"});
  ASSERT_FALSE(another.ok());
  EXPECT_EQ(another.error().code, Code::kConflict) << another.error().message;
  ASSERT_TRUE(Write(core::ReleaseWorkload{made.name, made.uid}).ok());
  EXPECT_TRUE(harness_->Await([&] { return !WorkloadOf(); }));
  EXPECT_TRUE(Write(core::ReleaseWorkload{made.name, made.uid}).ok()) << "again, as after a lost reply";
}

// The Workload of a deleted job is known until it is released, so that its quota is not lost.
TEST_P(BackendConformance, AWorkloadOutlivesItsJob) {
  if (!harness_->Enqueue(key_, "queue")) GTEST_SKIP() << "this backend has no Kueue";
  ASSERT_TRUE(harness_->Await([&] {
    const auto quota = backend().Observe(key_)->observed.quota;
    return quota && quota->api == core::Quota::Api::kRead;
  }));
  core::MakeWorkload make;
  make.queue = "queue";
  make.pod_sets = {{core::kWorkerSet, 1}};
  Change(make);
  harness_->DeleteJob(key_);
  bool released = false;
  while (!released) {
    core::PodRef held;
    ASSERT_TRUE(harness_->Await([&] {
      const auto left = backend().Observe(key_);
      if (!left) return false;
      const core::Observed& o = left->observed;
      const bool of_job = o.quota && o.job.deleted && !o.quota->workloads.empty();
      if (of_job) held = {o.quota->workloads.front().name, o.quota->workloads.front().uid};
      if (!o.stray_workloads.empty()) held = o.stray_workloads.front();
      uid_ = o.job.uid;
      return of_job || !o.stray_workloads.empty();
    }));
    const auto result = Write(core::ReleaseWorkload{held.name, held.uid});
    released = result.ok();
    // The view may have lost the job since it was read. The next decision names no job.
    if (!released) {
      ASSERT_EQ(result.error().code, Code::kNotFound) << result.error().message;
    }
  }
  EXPECT_TRUE(harness_->Await([&] { return !backend().Observe(key_); }));
}

TEST_P(BackendConformance, DeletingTheJobDeletesItsPods) {
  for (const int32_t rank : {kRuns, kFails}) ASSERT_TRUE(Create(rank).ok());
  ASSERT_TRUE(AwaitPod(Name(kRuns), PodPhase::kRunning));
  ASSERT_TRUE(AwaitPod(Name(kFails), PodPhase::kFailed));
  harness_->DeleteJob(key_);
  // Its pods are held until the controller lets go of them.
  std::set<std::string> released;
  for (bool gone = false; !gone;) {
    std::vector<core::PodRef> held;
    ASSERT_TRUE(harness_->Await([&] {
      const auto left = backend().Observe(key_);
      gone = !left;
      if (gone) return true;
      held.clear();
      for (const auto* pods : {&left->observed.pods, &left->observed.strays})
        for (const core::Pod& pod : *pods)
          if (pod.tracked && !released.contains(pod.uid)) held.push_back({pod.name, pod.uid});
      uid_ = left->observed.job.uid;
      return !held.empty();
    }));
    for (const core::PodRef& pod : held) {
      const auto result = Write(core::UntrackPod{pod.name, pod.uid});
      // The view may have lost the job since it was read. The next decision names no job.
      if (result.ok()) {
        released.insert(pod.uid);
      } else {
        ASSERT_EQ(result.error().code, Code::kNotFound) << result.error().message;
      }
    }
  }
  const auto late = Create(kRuns);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kNotFound) << late.error().message;
  for (const control::Key& key : backend().Keys()) EXPECT_NE(key, key_);
}

}  // namespace
}  // namespace ringmaster::conformance
