// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/controller/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "operator/core/decide/decide.h"

namespace ringmaster::sim {

using control::Key;

namespace {

bool Holds(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// After a change of the spec, a rank may leave and reenter the gang within the lag of the view.
constexpr Duration kSpecLag = seconds(30);
// The view may not include a lost node yet, and requests may be in flight.
constexpr Duration kOtherLeaderLag = seconds(15);
constexpr Duration kNodeLag = seconds(15);
// A request that is not late.
constexpr Duration kRequestLag = seconds(1);
// The scheduler's choices are known.
constexpr Duration kBindLag = seconds(5);
// A victim learns that the other job has started.
constexpr Duration kPreemptionLag = seconds(60);
// A live read repairs a stale view; then the objects are recreated.
constexpr Duration kSupportLag = seconds(90);

}  // namespace

Checker::Checker(World& world, const Scheduler& scheduler) : world_(world), scheduler_(scheduler) {
  World::Observer observer;
  observer.job_changed = [this](const Key& key) { OnJob(key); };
  observer.pod_changed = [this](const Key& key, const std::string& name) { OnPod(key, name); };
  observer.released = [this](const Key& key, const core::ReleaseGang& release) {
    std::set<std::string> uids;
    for (const core::PodRef& ref : release.pods) uids.insert(ref.uid);
    CheckRoom(key.name + " was released", uids);
  };
  observer.quota_freed = [this](const Key& key, const WorkloadTruth& freed) { CheckQuotaFreed(key, freed); };
  world_.Observe(std::move(observer));
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
  CheckPreemption(key, *job, shadow);
  if (shadow.ledger.attempt != job->status.ledger.attempt) shadow.disturbed = false;
  shadow.ledger = job->status.ledger;
}

void Checker::CheckLedger(const JobTruth& job, Shadow& shadow) {
  const core::Ledger& before = shadow.ledger;
  const core::Ledger& after = job.status.ledger;
  if (after == before) return;
  Require(after.attempt >= before.attempt, "I4",
          fmt::format("attempt {} -> {}", before.attempt, after.attempt));
  Require(after.attempt > before.attempt || !before.suspended || after.suspended, "I7",
          "resumed without a new attempt");
  // A clock that is set between a decision and its write shifts the times.
  Require(before.outcome == core::Outcome::kNone || (clocks_are_wrong_ && after.outcome == before.outcome),
          "I6", "the ledger of an ended job changed");
  Require(after.restarts.charged <= job.job.max_restarts, "I5",
          fmt::format("charged {} of {}", after.restarts.charged, job.job.max_restarts));
  CheckCounters(before, after);
  // Kueue has admitted more workers, perhaps long after they were asked for.
  const bool grown = job.job.slices && after.gang_size > before.gang_size;
  const bool kept = grown || job.job.in_place || !before.ready_since || shadow.disturbed || job.job.deleted ||
                    before.stop_since || before.suspended || after.attempt == before.attempt ||
                    world_.deposed() || scheduler_.now() - shadow.spec_changed < kSpecLag || !strays_.empty();
  Require(kept, "I18", "a gang is replaced although all of its workers run or have succeeded");
  if (before.outcome == core::Outcome::kNone && after.outcome == core::Outcome::kSucceeded &&
      !job.job.in_place) {
    const int32_t deciding = job.job.success == core::Success::kRank0 ? 1 : after.gang_size;
    for (int32_t rank = 0; rank < deciding; ++rank) {
      Require(job.foreign_attempt == after.attempt && job.foreign_done.contains(rank), "I21",
              fmt::format("the job succeeded without rank {}", rank));
    }
  }
  const int32_t charged = after.restarts.charged - before.restarts.charged;
  Require(charged == 0 || charged == 1, "I5", fmt::format("charged by {} in one write", charged));
  const bool resolved = after.suspects.size() < before.suspects.size();
  bool counts = after.attempt > before.attempt || resolved;
  bool must_charge = false;
  // Pods are also replaced when an exclusion ends; such a pod may have been scheduled and have failed in
  // between.
  const bool exclusion_ended = after.excluded.size() < before.excluded.size() || resolved;
  for (const std::string& uid : after.counted) {
    if (Holds(before.counted, uid)) continue;
    counts = true;
    // A deposed leader may not know that the pod was replaced.
    Require(shadow.ever_counted.insert(uid).second || world_.deposed(), "I5", uid + " is counted twice");
    for (const auto& [name, p] : job.pods) {
      // The pod became a suspect while it was ending, which is resolved later.
      const bool suspected = std::any_of(after.suspects.begin(), after.suspects.end(),
                                         [&name = name](const core::Suspect& s) { return s.pod == name; });
      const bool excused = exclusion_ended || suspected || p.pod.exit_code == 75 || p.pod.lost ||
                           !p.pod.conditions.empty() || shadow.ever_unreachable.contains(uid) ||
                           (!job.job.rules.empty() && p.pod.exit_code == kUnchargedExitCode);
      if (p.pod.uid == uid && p.pod.phase == core::PodPhase::kFailed && !excused) must_charge = true;
    }
  }
  Require(charged == 0 || counts, "I5", "charged for nothing");
  Require(!must_charge || charged == 1 || after.outcome == core::Outcome::kFailed, "I5",
          "a failure was counted and not charged");
}

int32_t Checker::PriorityOf(const Key& key) const {
  const auto it = priorities_.find(key);
  return it == priorities_.end() ? 0 : it->second;
}

int64_t Checker::AgeOf(const Key& key) const {
  const auto it = ages_.find(key);
  return it == ages_.end() ? 0 : it->second;
}

// Measures the room in the true state, like CheckRoom: a lagging view only underestimates it.
void Checker::CheckPreemption(const Key& key, const JobTruth& job, const Shadow& shadow) {
  const auto& preemption = job.status.ledger.preemption;
  if (!preemption || preemption == shadow.ledger.preemption) return;
  const Key by = Key::Parse(preemption->by);
  Require(PriorityOf(by) > PriorityOf(key), "I24",
          fmt::format("{} is preempted by {}, whose priority is not higher", key.name, by.name));
  Require(preemption->workers > 0 || job.status.ledger.stop_since, "I24", "a whole job does not stop");
  const Time now = scheduler_.now();
  if (now - shadow.spec_changed >= kSpecLag)
    Require(preemption->workers == 0 || (preemption->workers >= job.job.min && job.job.in_place), "I24",
            fmt::format("{} workers stay, fewer than the minimum", preemption->workers));
  const JobTruth* other = world_.Find(by);
  const bool edited = std::any_of(shadows_.begin(), shadows_.end(), [&](const auto& item) {
    return now - item.second.spec_changed < kNodeLag;
  });
  if (other == nullptr || edited || world_.deposed() || now - world_.nodes_changed_at() < kNodeLag ||
      now - world_.term_since() < kNodeLag || now - other->status.ledger.attempt_since < kNodeLag)
    return;
  int32_t room = 0;
  for (const auto& [name, node] : world_.nodes())
    if (!node.reported_since) room += node.pod_capacity;
  // Other jobs of lower priority may be asked for all that they have.
  for (const auto& [of, truth] : world_.jobs()) {
    for (const auto& [name, p] : truth.pods) {
      const bool stays = of == key ? preemption->workers > 0 && (p.pod.rank < preemption->workers ||
                                                                 p.pod.rank >= core::kRanksPerRole)
                                   : of != by && PriorityOf(of) >= PriorityOf(by);
      const core::Ledger& ledger = truth.status.ledger;
      const bool leaves = p.pod.deleting() || p.pod.attempt != ledger.attempt || ledger.stop_since ||
                          ledger.outcome != core::Outcome::kNone || truth.job.deleted;
      const bool has_place = p.pod.bound() || p.excluded_nodes.empty();
      room -= stays && has_place && p.pod.alive() && (of == key || !leaves) ? 1 : 0;
    }
  }
  // An elastic job that has run, or has waited long enough, may start with its minimum.
  const core::Ledger& waits = other->status.ledger;
  const Time since = std::max(waits.attempt_since, waits.not_before.value_or(waits.attempt_since));
  const bool smaller = waits.stepped || clocks_are_wrong_ || now >= since + other->job.gang_timeout;
  const int32_t workers = !other->job.in_place ? waits.gang_size
                          : smaller            ? other->job.min
                                               : other->job.Target();
  const int32_t needed = workers + other->job.RolePods();
  Require(room >= needed, "I24",
          fmt::format("{} is preempted in vain: {} has no room for {} pods", key.name, by.name, needed));
}

bool Checker::Outlasts(const Key& key, const JobTruth& job) {
  Shadow& shadow = shadows_[key];
  const auto& preemption = job.status.ledger.preemption;
  const JobTruth* by = preemption ? world_.Find(Key::Parse(preemption->by)) : nullptr;
  const bool waits =
      by != nullptr && by->job.uid == preemption->by_uid && !by->status.ended() && !by->status.ledger.placed;
  const bool needless = preemption && preemption->workers > 0 && !waits && !job.status.ended() &&
                        !job.job.deleted && !job.job.suspend && !job.status.ledger.stop_since;
  const Time now = scheduler_.now();
  if (!needless || world_.faulty() || world_.term() == 0) shadow.needless_since.reset();
  if (needless && !world_.faulty() && !shadow.needless_since) shadow.needless_since = now;
  return shadow.needless_since &&
         now - std::max(*shadow.needless_since, world_.term_since()) >= kPreemptionLag;
}

void Checker::CheckCounters(const core::Ledger& before, const core::Ledger& after) {
  Require(after.restarts.total >= before.restarts.total && after.restarts.charged >= before.restarts.charged,
          "I10",
          fmt::format("restarts {}/{} -> {}/{}", before.restarts.total, before.restarts.charged,
                      after.restarts.total, after.restarts.charged));
  const core::Goodput &a = before.goodput, &b = after.goodput;
  Require(b.queue >= a.queue && b.startup >= a.startup && b.restart >= a.restart && b.redone >= a.redone &&
              b.productive + b.redone >= a.productive + a.redone,
          "I10", "accounted time disappeared");
  if (clocks_are_wrong_ || !after.start_time) return;
  Require(b.queue + b.startup + b.restart + b.redone + b.productive <= scheduler_.now() - *after.start_time,
          "I10", "more time is accounted than has passed");
}

// Measures the room in the true state. A lagging view only underestimates the room that pods leave. Changes
// of nodes are excused for a while, and so are a leader that does not know what its predecessor was still
// doing, pods whose job was deleted before the view showed them: their places went with it, and pods that
// were just created for a domain: the scheduler may have given the place there to another pod meanwhile.
void Checker::CheckRoom(const std::string& what, const std::set<std::string>& uids) {
  if (world_.deposed() || world_.provider() != core::GangProvider::kGate) return;
  for (const auto& [other, job] : world_.jobs())
    if (job.job.autoscaler) return;  // its pods are released without room
  const Time now = scheduler_.now();
  if (now - world_.nodes_changed_at() < kNodeLag || now - world_.term_since() < kNodeLag) return;
  std::map<std::string, int32_t> free;  // by node
  for (const auto& [name, node] : world_.nodes())
    if (!node.reported_since) free[name] = node.pod_capacity;
  std::vector<const sim::PodTruth*> coming;
  for (const auto& [other, job] : world_.jobs()) {
    for (const auto& [name, p] : job.strays)
      if (const auto node = free.find(p.pod.node);
          node != free.end() && p.pod.alive() && !p.orphaned && now - p.pod.created >= kNodeLag)
        node->second -= 1;
    for (const auto& [name, p] : job.pods) {
      if (!p.pod.alive()) continue;
      if (const auto node = free.find(p.pod.node); node != free.end())
        node->second -= 1;
      else if (!p.pod.bound() && (uids.contains(p.pod.uid) ||
                                  (!p.pod.gated && (p.domain.empty() || now - p.pod.created >= kRequestLag))))
        coming.push_back(&p);
    }
  }
  int32_t room = 0;
  for (const auto& [name, places] : free) room += places;
  // Those that only some nodes may hold come first. More of them may wait than these nodes have room for: a
  // scheduler that knows no domains gave their places to others, or two leaders released pods into the same
  // room.
  std::stable_partition(coming.begin(), coming.end(), [](const sim::PodTruth* p) {
    return !p->domain.empty() || !p->excluded_nodes.empty();
  });
  for (const sim::PodTruth* p : coming) {
    const auto node = std::find_if(free.begin(), free.end(), [&](const auto& one) {
      return one.second > 0 && !Holds(p->excluded_nodes, one.first) &&
             (p->domain.empty() || world_.nodes().at(one.first).domain == p->domain);
    });
    if (node != free.end()) node->second -= 1;
    room -= node != free.end() || uids.contains(p->pod.uid) ? 1 : 0;
  }
  Require(room >= 0, "I11", fmt::format("{} with room missing for {} pods", what, -room));
}

void Checker::OnTick(bool led) {
  WatchWaiting();
  for (const auto& [key, job] : world_.jobs()) {
    Shadow& shadow = shadows_[key];
    Require(!job.gang.order || job.gang.order_term == world_.term(), "I15",
            "the gang follows a leader that was deposed");
    Require(job.gang.newest_attempt >= shadow.newest_attempt || shadow.job_uid != job.job.uid, "I3",
            fmt::format("attempt {} makes steps after attempt {} did", job.gang.newest_attempt,
                        shadow.newest_attempt));
    shadow.newest_attempt = job.gang.newest_attempt;
    Require(!Outlasts(key, job), "I24", key.name + " keeps fewer workers for a job that does not wait");
    CheckStranded(job, shadow, led);
    const core::Ledger& ledger = job.status.ledger;
    const bool wanted = ledger.outcome == core::Outcome::kNone && !ledger.suspended && !ledger.stop_since &&
                        !job.job.deleted && !(ledger.not_before && !ledger.placed);
    Require(world_.faulty() || !wanted || !job.support_missing_since ||
                scheduler_.now() - std::max(*job.support_missing_since, world_.term_since()) < kSupportLag,
            "I12", "the supporting objects were damaged and are not repaired");
  }
}

void Checker::OnPod(const Key& key, const std::string& name) {
  const JobTruth* job = world_.Find(key);
  if (job == nullptr) return;
  Shadow& shadow = shadows_[key];
  auto old = shadow.pods.find(name);
  auto now = job->pods.find(name);
  if (now == job->pods.end()) {
    if (old == shadow.pods.end()) return;
    CheckRemoved(key, *job, shadow, old->second);
    shadow.disturbed |=
        old->second.attempt == shadow.ledger.attempt && old->second.phase != core::PodPhase::kSucceeded;
    shadow.pods.erase(old);
    return;
  }
  if (old == shadow.pods.end()) {
    if (Stray(*job)) strays_.insert(now->second.pod.uid);
    CheckCreated(key, *job, now->second.pod);
  }
  const core::Pod& pod = now->second.pod;
  if (pod.bound() && (old == shadow.pods.end() || !old->second.bound())) CheckDomain(*job, pod);
  if (pod.unreachable_since) shadow.ever_unreachable.insert(pod.uid);
  shadow.disturbed |= pod.attempt == shadow.ledger.attempt &&
                      (pod.interrupted() || pod.unreachable_since || pod.phase == core::PodPhase::kFailed);
  shadow.pods[name] = now->second.pod;
}

// Whether a deposed leader acted, or a leader that could not know yet what a deposed one has just written.
bool Checker::Stray(const JobTruth& job) const {
  // A leader has read everything that was written before it started.
  const bool other = job.status_term != world_.acting_term() && job.status_at >= world_.term_since();
  return world_.deposed() || (other && scheduler_.now() - job.status_at < kOtherLeaderLag);
}

// Whether the job started or resumed while the LocalQueue `default` existed, as the operator could see.
bool Checker::StartsWithDefaultQueue(const JobTruth& job) const {
  if (!world_.default_queue() || clocks_are_wrong_) return false;
  Time began = job.status.ledger.active_since.value_or(scheduler_.now());
  for (const auto& [name, p] : job.pods) began = std::min(began, p.pod.created);
  return began > world_.default_queue_changed() + kSpecLag;
}

void Checker::CheckCreated(const Key& key, const JobTruth& job, const core::Pod& pod) {
  // A deposed leader may still create pods: nothing in a cluster can stop it. These pods do not join the gang
  // (OnTick) and are drained (OnEnd).
  if (Stray(job)) return;
  const core::Ledger& ledger = job.status.ledger;
  Require(pod.name == core::PodName(job.job.name, pod.attempt, pod.rank), "I2", "name " + pod.name);
  for (const auto& [name, other] : job.pods)
    Require(other.pod.attempt == pod.attempt || strays_.contains(other.pod.uid), "I3",
            pod.name + " was created although there is " + name);
  Require(pod.attempt == ledger.attempt, "I4",
          fmt::format("{} was created, the ledger has {}", pod.name, ledger.attempt));
  Require(ledger.outcome == core::Outcome::kNone, "I6", pod.name + " was created for an ended job");
  Require(!ledger.suspended && !ledger.stop_since, "I7", pod.name + " was created while stopped");
  Require(clocks_are_wrong_ || !ledger.not_before || scheduler_.now() >= *ledger.not_before, "I9",
          pod.name + " was created during the back-off");
  // A request that takes long finds another world. So does one on whose way the scheduler gives the reserved
  // place to a pod that had another one.
  const Time now = scheduler_.now();
  const auto decided = creations_.find(job.job.uid + "/" + pod.name);
  bool changed = decided != creations_.end() && now - decided->second > kRequestLag;
  for (const auto& [other, truth] : world_.jobs())
    for (const auto& [name, p] : truth.pods)
      changed = changed || (truth.job.uid != job.job.uid && p.pod.bound() && now - p.pod.placed < kBindLag);
  if (!pod.gated && !changed) CheckRoom(pod.name + " was created", {pod.uid});
  if (scheduler_.now() - job.queue_changed < kSpecLag) return;
  if (job.queue.empty() && !StartsWithDefaultQueue(job)) return;
  // A deposed leader may have cleared the admission of a job that it saw suspended, and the new leader's view
  // is behind.
  if (world_.deposed() || scheduler_.now() - world_.term_since() < kNodeLag) return;
  const auto& workloads = world_.WorkloadsOf(key);
  Require(std::any_of(workloads.begin(), workloads.end(),
                      [&](const WorkloadTruth& w) {
                        return w.owner_uid == job.job.uid && w.workload.reserved && !w.workload.finished;
                      }),
          "I22", pod.name + " was created without quota");
}

void Checker::CheckRemoved(const Key& key, const JobTruth& job, const Shadow& shadow, const core::Pod& pod) {
  const core::Ledger& ledger = job.status.ledger;
  const bool running_job = !job.job.deleted && ledger.outcome == core::Outcome::kNone && !ledger.suspended &&
                           !ledger.stop_since && ledger.attempt == pod.attempt;
  if (Stray(job) || !running_job || !job.job.in_place || pod.phase != core::PodPhase::kFailed ||
      pod.deleting())
    return;
  if (scheduler_.now() - shadow.spec_changed < kSpecLag) return;
  core::Observed o = WithQuota(key, job);
  o.job.allowed = core::AllowedWorkers(ledger);
  core::LimitToQuota(o);
  if (!o.job.HasRank(o.job.Target(), pod.rank)) return;
  Require(Holds(ledger.counted, pod.uid), "I5",
          fmt::format("{} (exit {}) was removed and not counted", pod.name, pod.exit_code));
}

void Checker::OnDecision(const core::Observed& o, const core::Decision& decision, Time now) {
  constexpr int64_t kEndless = 10'000;  // a few jobs need some dozens
  decided_then_ = std::exchange(decided_at_, scheduler_.now()) == scheduler_.now() ? decided_then_ + 1 : 1;
  Require(decided_then_ < kEndless, "Livelock", "decisions without end: " + decision.reason);
  NoteWaiting(o, decision, now);
  size_t writes = 0;
  const core::Ledger& ledger = o.status.ledger;
  for (const core::Action& action : decision.actions) {
    writes += std::holds_alternative<core::SetStatus>(action) ? 1 : 0;
    const auto* remove = std::get_if<core::DeletePod>(&action);
    if (remove == nullptr) continue;
    // An earlier job of this name may have been deleted with its pods.
    const bool of_this_job = std::none_of(o.strays.begin(), o.strays.end(),
                                          [&](const core::Pod& pod) { return pod.uid == remove->uid; });
    Require(!o.job.orphans || !of_this_job, "I19",
            remove->name + " is deleted although its job was deleted without its pods");
    for (const core::Pod& pod : o.pods) {
      if (pod.uid != remove->uid || !remove->force() || !pod.alive()) continue;
      const bool lost = Holds(ledger.counted, pod.uid) || ledger.suspended;
      const bool overstayed = pod.delete_by && now >= *pod.delete_by;
      const bool node_lost =
          pod.unreachable_since && now >= *pod.unreachable_since + o.job.unreachable_node_limit;
      const bool over_grace = ledger.stop_since && now >= *ledger.stop_since + o.job.grace;
      Require(lost || overstayed || over_grace || node_lost, "I8",
              pod.name + " is force-deleted without a reason");
    }
  }
  if (writes > 0 && decision.actions.size() > 1)
    Require(false, "I1", "status and actions in one decision: " + core::ToString(decision));
  CheckGangDecision(o, decision, now);
  for (const core::Action& action : decision.actions)
    if (const auto* create = std::get_if<core::CreatePod>(&action))
      creations_[o.job.uid + "/" + create->name] = scheduler_.now();
}

// Checks the decision against the controller's knowledge at that time.
void Checker::CheckGangDecision(const core::Observed& o, const core::Decision& decision, Time now) {
  const core::Ledger& ledger = o.status.ledger;
  const bool runs = !o.job.deleted && !o.job.suspend && !ledger.suspended && !ledger.stop_since &&
                    ledger.outcome == core::Outcome::kNone;
  const bool writes =
      !decision.actions.empty() && std::holds_alternative<core::SetStatus>(decision.actions.front());
  // The pods of an earlier job are let go before anything else.
  for (const core::Suspect& suspect : ledger.suspects)
    Require(!runs || writes || !o.strays.empty() || !o.not_ready_nodes ||
                !Holds(*o.not_ready_nodes, suspect.node),
            "I16", suspect.pod + " is not resolved, although its node is known to be lost");
  if (o.quota)
    Require(!o.quota->defaulted || o.pods.empty() || core::LiveWorkload(o) != nullptr, "I22",
            "the default queue stops a job that runs without a queue");
  const bool done =
      runs && o.job.in_place && std::any_of(o.pods.begin(), o.pods.end(), [&](const core::Pod& pod) {
        return pod.attempt == ledger.attempt && pod.finished;
      });
  for (const core::Action& action : decision.actions) {
    if (const auto* create = std::get_if<core::CreatePod>(&action)) {
      Require(!done, "I28", create->name + " is created although the job is finished");
      Require(o.prepared && o.prepared->attempt == create->attempt, "I12",
              create->name + " is created before the supporting objects");
      Require(!o.preflight && !(o.refusal && now < o.refusal->retry_at), "I13",
              create->name + " is created during the pause after a refusal");
      Require(!core::ReservesRoom(o) ||
                  std::binary_search(o.fit.reserved.begin(), o.fit.reserved.end(), create->rank),
              "I11", create->name + " is created without a reserved place");
      CheckAdmitted(o, *create);
      for (const core::ExcludedNode& node : ledger.excluded)
        Require(
            node.until <= now || Holds(node.effect == core::NodeEffect::kNoSchedule ? create->excluded_nodes
                                                                                    : create->avoided_nodes,
                                       node.name),
            "I14", create->name + " may go to the excluded " + node.name);
      for (const core::Suspect& suspect : ledger.suspects)
        Require(suspect.node.empty() || now >= suspect.since + core::kSuspicionPeriod ||
                    Holds(create->avoided_nodes, suspect.node),
                "I16", create->name + " does not avoid " + suspect.node);
    }
    if (const auto* prepare = std::get_if<core::PrepareGang>(&action)) {
      const auto of_attempt = [&](const core::Pod& pod) { return pod.attempt == ledger.attempt; };
      const bool drains =
          o.prepared && (!o.strays.empty() || !std::all_of(o.pods.begin(), o.pods.end(), of_attempt));
      Require(!core::ReservesRoom(o) || !o.fit.reserved.empty() || drains ||
                  std::any_of(o.pods.begin(), o.pods.end(), of_attempt),
              "I26", o.job.name + " waits for room, and its supporting objects are created");
      // A leader that crashes before its first status write leaves supporting objects without a ledger. The
      // next one need not see them when it decides on the size, and replaces them while there is no pod.
      const bool resized = o.prepared && o.prepared->attempt == prepare->attempt &&
                           o.prepared->size != prepare->size &&
                           std::any_of(o.pods.begin(), o.pods.end(),
                                       [&](const core::Pod& pod) { return pod.attempt == prepare->attempt; });
      Require(o.job.in_place || !resized, "I4", "the gang changes its size within an attempt");
    }
    const auto* release = std::get_if<core::ReleaseGang>(&action);
    if (release == nullptr || o.job.in_place) continue;
    size_t free = 0;
    for (const core::Pod& pod : o.pods) free += pod.attempt == ledger.attempt && !pod.gated ? 1 : 0;
    Require(free + release->pods.size() >= static_cast<size_t>(ledger.gang_size + o.job.RolePods()) ||
                o.job.autoscaler,
            "I11", fmt::format("{} of {} pods are released", release->pods.size(), ledger.gang_size));
  }
  // A pod that has ended was not refused. What its end means for the gang may take the next report of its
  // node.
  const auto free = std::count_if(o.pods.begin(), o.pods.end(), [&](const core::Pod& pod) {
    return pod.attempt == ledger.attempt && o.job.HasRank(ledger.gang_size, pod.rank) && !pod.deleting() &&
           !pod.gated;
  });
  Require(!runs || !decision.actions.empty() || !core::ReservesRoom(o) || !o.refusal || ledger.ready_since ||
              o.job.in_place || !ledger.succeeded.empty() || free == 0 ||
              free >= ledger.gang_size + o.job.RolePods(),
          "I11", fmt::format("{} of {} pods stay, though others are refused", free, ledger.gang_size));
  if (const auto* set =
          decision.actions.empty() ? nullptr : std::get_if<core::SetStatus>(&decision.actions.front())) {
    CheckSuspects(o, set->status.ledger, now);
    Require(!done || (set->status.ledger.attempt == ledger.attempt &&
                      set->status.ledger.counted == ledger.counted),
            "I28", "the workers of a finished job are replaced");
    const int32_t workers = o.job.in_place ? o.job.Target() : ledger.gang_size;
    const auto exist = std::count_if(o.pods.begin(), o.pods.end(), [&](const core::Pod& pod) {
      return pod.attempt == ledger.attempt && o.job.HasRank(workers, pod.rank) && !pod.deleting();
    });
    const bool complete =
        exist >= (o.job.in_place ? std::min(o.job.min, workers) : workers) + o.job.RolePods();
    const bool patient = (o.job.autoscaler || o.all_at_once) && o.job.TopologyKey().empty() && complete;
    const auto holds = [&](const core::Pod& pod) {
      return pod.attempt == ledger.attempt &&
             (!patient || pod.waiting_reason != core::kUnschedulable ||
              now - pod.created >= core::kLimitsForNewNodes * o.job.gang_timeout);
    };
    Require(set->status.ledger.withdrawals <= ledger.withdrawals ||
                std::any_of(o.pods.begin(), o.pods.end(), holds),
            "I11", "a gang that holds nothing is withdrawn");
    const auto& failure = set->status.ledger.last_failure;
    if (!failure || failure == ledger.last_failure || failure->cause != core::Cause::kNodeUnreachable) return;
    const bool silent =
        (o.report && Holds(o.report->silent_pods, failure->pod)) ||
        std::any_of(ledger.suspects.begin(), ledger.suspects.end(),
                    [&](const core::Suspect& s) { return s.node.empty() || s.pod == failure->pod; });
    const bool long_enough = std::any_of(o.pods.begin(), o.pods.end(), [&](const core::Pod& pod) {
      return pod.name == failure->pod && pod.unreachable_since &&
             now >= *pod.unreachable_since + kUnreachableLimit;
    });
    Require(silent || long_enough, "I8",
            failure->pod + " is lost before its node was unreachable for long enough");
    Require(!o.job.in_place || !o.report || silent || !Holds(o.report->heard_pods, failure->pod), "I29",
            failure->pod + " is given up although the coordinator hears it");
  }
}

// Whether the node is known to have started again after `since`.
bool Checker::Restarted(const core::Observed& o, const std::string& node, Time since) {
  return std::any_of(
      o.restarted_nodes.begin(), o.restarted_nodes.end(),
      [&](const core::NodeRestart& restart) { return restart.name == node && restart.at > since; });
}

// A suspect may be charged only after the suspicion period, or when its node is known. While a suspected node
// is not ready, or after it has started again, its workers are not charged. A suspect without a node may be
// charged when the last old pod is gone.
void Checker::CheckSuspects(const core::Observed& o, const core::Ledger& after, Time now) {
  const core::Ledger& before = o.status.ledger;
  if (after.outcome != core::Outcome::kNone) return;
  const bool charged = after.restarts.charged > before.restarts.charged;
  // A pod that cannot start is charged at once, together with failures that were found with it.
  const bool all_started = std::none_of(o.pods.begin(), o.pods.end(), [](const core::Pod& pod) {
    return pod.phase == core::PodPhase::kPending;
  });
  if (charged && after.last_failure && after.last_failure != before.last_failure &&
      after.last_failure->cause == core::Cause::kExit) {
    for (const core::Pod& pod : o.pods)
      Require(!pod.lost || pod.name != after.last_failure->pod, "I17",
              pod.name + " is charged although its node started again");
  }
  if (charged && !o.job.in_place && o.not_ready_nodes && all_started && after.attempt > before.attempt &&
      after.last_failure->cause == core::Cause::kExit) {
    for (const core::Pod& pod : o.pods)
      Require(pod.phase != core::PodPhase::kRunning || pod.attempt != before.attempt ||
                  pod.name == after.last_failure->pod,
              "I16",
              after.last_failure->pod + " is charged although the state of " + pod.name + " is unknown");
  }
  if (after.suspects.size() >= before.suspects.size()) return;
  for (const core::Suspect& suspect : before.suspects) {
    if (std::find(after.suspects.begin(), after.suspects.end(), suspect) != after.suspects.end()) continue;
    const auto old = [&](const core::Pod& pod) { return pod.attempt < before.attempt; };
    const bool lost = std::any_of(o.pods.begin(), o.pods.end(), [&](const core::Pod& pod) {
      const bool not_ready = o.not_ready_nodes && Holds(*o.not_ready_nodes, pod.node);
      return old(pod) && (pod.lost || (pod.alive() && (not_ready || Restarted(o, pod.node, suspect.since))));
    });
    if (suspect.node.empty()) {
      Require(!lost || !charged, "I16", suspect.pod + " is charged for the loss of a peer's node");
      Require(lost || clocks_are_wrong_ || now >= suspect.since + core::kSuspicionPeriod ||
                  std::none_of(o.pods.begin(), o.pods.end(), old),
              "I16", suspect.pod + " is resolved while the drain may show a lost node");
      continue;
    }
    const bool not_ready = (o.not_ready_nodes && Holds(*o.not_ready_nodes, suspect.node)) ||
                           Restarted(o, suspect.node, suspect.since);
    Require(!not_ready || !charged, "I16", suspect.pod + " is charged for the loss of " + suspect.node);
    Require(not_ready || clocks_are_wrong_ || now >= suspect.since + core::kSuspicionPeriod, "I16",
            suspect.pod + " is resolved before the state of its node is known");
  }
}

void Checker::OnEnd(const Key& key, bool settled) {
  const JobTruth* job = world_.Find(key);
  if (job == nullptr) return;
  core::Observed o = WithQuota(key, *job);
  for (const auto& [name, p] : job->pods) o.pods.push_back(p.pod);
  o.report = job->gang.report;
  o.order = job->gang.order;
  Require(settled, "liveness", "not at rest: " + core::ToString(o, scheduler_.now()));
}

}  // namespace ringmaster::sim
