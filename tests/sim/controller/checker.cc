#include "tests/sim/controller/checker.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringmaster::sim {

using control::Key;

namespace {

bool Holds(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// After a change of the wish, a pod may be outside of it and inside again within the lag of the view.
constexpr Duration kSpecLag = seconds(30);

}  // namespace

Checker::Checker(World& world, const Scheduler& scheduler) : world_(world), scheduler_(scheduler) {
  world_.Observe({[this](const Key& key) { OnJob(key); },
                  [this](const Key& key, const std::string& name) { OnPod(key, name); }, nullptr});
}

void Checker::Require(bool holds, const char* invariant, const std::string& what) {
  if (holds || breach_) return;
  breach_ = fmt::format("{} at {} ms: {}", invariant, ToMs(scheduler_.elapsed()), what);
}

void Checker::OnJob(const Key& key) {
  const JobTruth* job = world_.Find(key);
  if (job == nullptr) {
    shadows_.erase(key);
    return;
  }
  Shadow& shadow = shadows_[key];
  if (shadow.job_uid != job->job.uid) {
    shadow = {};
    shadow.job_uid = job->job.uid;
  }
  if (shadow.spec_generation != job->job.spec_generation) {
    shadow.spec_generation = job->job.spec_generation;
    shadow.spec_changed = scheduler_.now();
  }
  CheckLedger(*job, shadow);
  shadow.ledger = job->status.ledger;
}

void Checker::CheckLedger(const JobTruth& job, Shadow& shadow) {
  const core::Ledger& before = shadow.ledger;
  const core::Ledger& after = job.status.ledger;
  if (after == before) return;
  Require(after.attempt >= before.attempt, "I4",
          fmt::format("attempt {} -> {}", before.attempt, after.attempt));
  Require(after.attempt > before.attempt || !before.suspended || after.suspended, "I7",
          "resumed without an attempt of its own");
  Require(before.outcome == core::Outcome::kNone, "I6", "the ledger of an ended job changed");
  Require(after.restarts.charged <= job.job.max_restarts, "I5",
          fmt::format("charged {} of {}", after.restarts.charged, job.job.max_restarts));
  const int32_t charged = after.restarts.charged - before.restarts.charged;
  Require(charged == 0 || charged == 1, "I5", fmt::format("charged by {} in one write", charged));
  bool counts = after.attempt > before.attempt;
  bool must_charge = false;
  for (const std::string& uid : after.counted) {
    if (Holds(before.counted, uid)) continue;
    counts = true;
    Require(shadow.ever_counted.insert(uid).second, "I5", uid + " is counted twice");
    for (const auto& [name, p] : job.pods) {
      const bool excused =
          p.pod.exit_code == 75 || (!job.job.rules.empty() && p.pod.exit_code == kUnchargedExitCode);
      if (p.pod.uid == uid && p.pod.phase == core::PodPhase::kFailed && !excused) must_charge = true;
    }
  }
  Require(charged == 0 || counts, "I5", "charged for nothing");
  Require(!must_charge || charged == 1 || after.outcome == core::Outcome::kFailed, "I5",
          "a failure was counted and not charged");
}

void Checker::OnPod(const Key& key, const std::string& name) {
  const JobTruth* job = world_.Find(key);
  if (job == nullptr) return;
  Shadow& shadow = shadows_[key];
  auto old = shadow.pods.find(name);
  auto now = job->pods.find(name);
  if (now == job->pods.end()) {
    if (old == shadow.pods.end()) return;
    CheckRemoved(*job, shadow, old->second);
    shadow.pods.erase(old);
    return;
  }
  if (old == shadow.pods.end()) CheckCreated(*job, now->second.pod);
  shadow.pods[name] = now->second.pod;
}

void Checker::CheckCreated(const JobTruth& job, const core::Pod& pod) {
  const core::Ledger& ledger = job.status.ledger;
  Require(pod.name == core::PodName(job.job.name, pod.attempt, pod.rank), "I2", "name " + pod.name);
  for (const auto& [name, other] : job.pods)
    Require(other.pod.attempt == pod.attempt, "I3", pod.name + " was made while there is " + name);
  Require(pod.attempt == ledger.attempt, "I4",
          fmt::format("{} was made, the ledger says {}", pod.name, ledger.attempt));
  Require(ledger.outcome == core::Outcome::kNone, "I6", pod.name + " was made for an ended job");
  Require(!ledger.suspended && !ledger.stop_since, "I7", pod.name + " was made while stopped");
  Require(!ledger.not_before || scheduler_.now() >= *ledger.not_before, "I9",
          pod.name + " was made during the back-off");
}

void Checker::CheckRemoved(const JobTruth& job, const Shadow& shadow, const core::Pod& pod) {
  const core::Ledger& ledger = job.status.ledger;
  const bool running_job = !job.job.deleted && ledger.outcome == core::Outcome::kNone && !ledger.suspended &&
                           !ledger.stop_since && ledger.attempt == pod.attempt;
  if (!running_job || !job.job.native || pod.phase != core::PodPhase::kFailed || pod.deleting()) return;
  if (scheduler_.now() - shadow.spec_changed < kSpecLag) return;
  if (pod.rank >= job.job.Target()) return;
  Require(Holds(ledger.counted, pod.uid), "I5",
          fmt::format("{} (exit {}) was removed and not counted", pod.name, pod.exit_code));
}

void Checker::OnDecision(const core::Observed& o, const core::Decision& decision, Time now) {
  size_t writes = 0;
  const core::Ledger& ledger = o.status.ledger;
  for (const core::Action& action : decision.actions) {
    writes += std::holds_alternative<core::SetStatus>(action) ? 1 : 0;
    const auto* remove = std::get_if<core::DeletePod>(&action);
    if (remove == nullptr) continue;
    for (const core::Pod& pod : o.pods) {
      if (pod.uid != remove->uid || !remove->force() || !pod.alive()) continue;
      const bool lost = Holds(ledger.counted, pod.uid) || ledger.suspended;
      const bool overstayed = pod.delete_by && now >= *pod.delete_by;
      const bool over_grace = ledger.stop_since && now >= *ledger.stop_since + o.job.grace;
      Require(lost || overstayed || over_grace, "I8", pod.name + " is forced out of life without a reason");
    }
  }
  Require(writes == 0 || decision.actions.size() == 1, "I1",
          "status and actions in one decision: " + core::ToString(decision));
}

void Checker::OnEnd(const Key& key, bool settled) {
  const JobTruth* job = world_.Find(key);
  if (job == nullptr) return;
  core::Observed o;
  o.job = job->job;
  o.status = job->status;
  for (const auto& [name, p] : job->pods) o.pods.push_back(p.pod);
  o.report = job->gang.report;
  o.order = job->gang.order;
  Require(settled, "liveness", "not at rest: " + core::ToString(o, scheduler_.now()));
}

}  // namespace ringmaster::sim
