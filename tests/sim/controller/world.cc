// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/controller/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/controller/gang_model.h"

namespace ringmaster::sim {

using control::Key;
using control::Kind;
using control::Revision;

namespace {

constexpr Duration kNamespaceEnds = seconds(4);
constexpr Duration kImageMissing = seconds(20);
constexpr Duration kLeaveMax = milliseconds(3000);  // SIGTERM -> end, for a well-behaved program
constexpr Duration kOrphansStay = seconds(10);
constexpr Duration kCollectGrace = milliseconds(2000);

Error NotFound(const std::string& what) { return {Code::kNotFound, "no " + what}; }

}  // namespace

World::World(Scheduler& scheduler, Options options)
    : scheduler_(scheduler),
      options_(std::move(options)),
      rng_(options_.seed),
      cordons_(KeyedRandom(options_.seed, 2)),
      outages_(KeyedRandom(options_.seed, 3)),
      unheard_(KeyedRandom(options_.seed, 6)),
      kueue_(KeyedRandom(options_.seed, 1), options_.faults) {
  if (!options_.behaviour) options_.behaviour = [](const core::Pod&) { return Behaviour{}; };
  for (size_t i = 0; i < options_.pod_capacities.size(); ++i) {
    NodeTruth& node = nodes_[fmt::format("node-{}", i)];
    node.pod_capacity = options_.pod_capacities[i];
    if (i < options_.domains.size()) node.domain = options_.domains[i];
  }
  if (options_.models) scheduler_.After(GangModel::kTick, [this] { Tick(); });
}

const JobTruth* World::Find(const Key& key) const {
  auto it = jobs_.find(key);
  return it == jobs_.end() || it->second.gone ? nullptr : &it->second;
}

const std::map<std::string, PodTruth>& World::StraysOf(const Key& key) const {
  static const std::map<std::string, PodTruth> kNone;
  auto it = jobs_.find(key);
  return it == jobs_.end() ? kNone : it->second.strays;
}

Duration World::Random(Duration most) {
  return Duration(static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(most.count()) + 1)));
}

// ---- the user

void World::Submit(const Key& key, core::Job job, int64_t total_steps, std::string queue) {
  JobTruth truth;
  truth.queue = std::move(queue);
  truth.queue_changed = scheduler_.now();
  job.uid = fmt::format("job-{}", next_uid_++);
  truth.job = std::move(job);
  truth.gang.total_steps = total_steps;
  // Where the API server creates the status, it names the first attempt.
  if (rng_.Below(2) == 0) truth.status.ledger.attempt = 1;
  if (auto it = jobs_.find(key); it != jobs_.end()) truth.strays = std::move(it->second.strays);
  jobs_[key] = std::move(truth);
  JobChanged(key);
}

void World::Change(const Key& key, const std::function<void(core::Job&)>& change) {
  auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second.job.deleted) return;
  change(it->second.job);
  it->second.job.spec_generation += 1;
  JobChanged(key);
}

void World::Delete(const Key& key, Cascade cascade) {
  auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second.job.deleted) return;
  it->second.job.deleted = true;
  it->second.job.orphans = cascade == Cascade::kOrphan;
  if (cascade == Cascade::kOrphan) {
    JobChanged(key);
    scheduler_.After(Random(kCollectGrace), [this, key, uid = it->second.job.uid] {
      if (const JobTruth* job = Find(key); job != nullptr && job->job.uid == uid) LeaveBehind(key, true);
    });
    return;
  }
  const std::string owner = it->second.job.uid;
  if (cascade == Cascade::kBackground)
    LeaveBehind(key, false);
  else
    JobChanged(key);
  CollectWorkloads(key, owner, false);
  std::vector<std::string> uids;
  ForEachPod([&](const Key& of, const PodTruth& pod) {
    if (of == key && !pod.orphaned) uids.push_back(pod.pod.uid);
  });
  for (const std::string& uid : uids)
    if (PodTruth* pod = FindPod(key, uid)) RequestDeletion(key, *pod);
  if (jobs_.contains(key)) Collect(key);
}

// The job goes, its pods stay.
void World::LeaveBehind(const Key& key, bool orphaned) {
  JobTruth& job = jobs_.at(key);
  for (auto& [name, pod] : job.pods) pod.orphaned = orphaned;
  job.strays.merge(job.pods);
  std::vector<std::string> names;
  for (const auto& [name, pod] : job.strays) names.push_back(name);
  job.pods.clear();
  if (orphaned) CollectWorkloads(key, job.job.uid, true);
  job.gone = true;
  job.job.deleted = true;
  job.job.uid.clear();
  JobChanged(key);
  for (const std::string& name : names) PodChanged(key, name);
  if (orphaned) scheduler_.After(kOrphansStay, [this, key, names] { RemoveOrphans(key, names); });
  Collect(key);
}

// The user who orphaned pods removes them, once the operator has let go of them.
void World::RemoveOrphans(const Key& key, const std::vector<std::string>& names) {
  std::vector<std::string> held;
  for (const std::string& name : names) {
    const auto job = jobs_.find(key);
    if (job == jobs_.end()) return;
    const auto pod = job->second.strays.find(name);
    if (pod == job->second.strays.end() || !pod->second.orphaned) continue;
    if (pod->second.pod.tracked)
      held.push_back(name);
    else
      RemovePod(key, name);
  }
  if (!held.empty()) scheduler_.After(kOrphansStay, [this, key, held] { RemoveOrphans(key, held); });
}

void World::RequestDeletion(const Key& key, PodTruth& pod) {
  if (pod.pod.deleting()) return;
  if (pod.pod.alive() && pod.pod.bound()) return Terminate(key, pod, kCollectGrace);
  pod.pod.collected = !pod.pod.alive();
  EndDeletion(key, pod);
}

void World::EndDeletion(const Key& key, PodTruth& pod) {
  if (!pod.pod.tracked) return RemovePod(key, pod.pod.name);
  pod.pod.delete_by = std::min(pod.pod.delete_by.value_or(scheduler_.now()), scheduler_.now());
  PodChanged(key, pod.pod.name);
}

void World::DeletePodByHand(const Key& key, const std::string& name) {
  auto it = jobs_.find(key);
  if (it == jobs_.end()) return;
  auto pod = it->second.pods.find(name);
  if (pod != it->second.pods.end()) RequestDeletion(key, pod->second);
}

void World::DeleteNamespace() {
  namespace_ending_until_ = scheduler_.now() + kNamespaceEnds;
  std::vector<Key> keys;
  for (const auto& [key, job] : jobs_) keys.push_back(key);
  for (const Key& key : keys) Delete(key);
}

void World::DamageSupport(const Key& key) {
  auto it = jobs_.find(key);
  if (it == jobs_.end() || !it->second.support || !it->second.support_complete) return;
  it->second.support_complete = false;
  SupportChanged(key);
}

// ---- the API server

Result<Revision> World::Apply(const control::Write& write, Term term) {
  const auto* let_go = std::get_if<core::ReleaseWorkload>(&write.action);
  if (let_go != nullptr && write.job_uid.empty()) return ReleaseWorkload(write.key, *let_go);
  auto it = jobs_.find(write.key);
  const bool of_stray = write.job_uid.empty() && (std::holds_alternative<core::DeletePod>(write.action) ||
                                                  std::holds_alternative<core::UntrackPod>(write.action));
  if (it == jobs_.end() || (it->second.job.uid != write.job_uid && !of_stray))
    return NotFound("job " + write.job_uid);
  JobTruth& job = it->second;
  acting_term_ = term;
  if (const auto* set = std::get_if<core::SetStatus>(&write.action)) {
    if (write.if_revision && *write.if_revision != job.revision)
      return Error{Code::kConflict, fmt::format("revision {} is not {}", job.revision, *write.if_revision)};
    job.status = set->status;
    job.status_term = term;
    job.status_at = scheduler_.now();
    return JobChanged(write.key);
  }
  if (const auto* create = std::get_if<core::CreatePod>(&write.action))
    return CreatePod(write.key, job, *create);
  if (const auto* remove = std::get_if<core::DeletePod>(&write.action))
    return DeletePod(write.key, job, *remove);
  if (const auto* untrack = std::get_if<core::UntrackPod>(&write.action))
    return UntrackPod(write.key, *untrack);
  if (std::holds_alternative<core::TryPods>(write.action)) {
    auto refusal = RefusesPods("a pod like those of " + job.job.name);
    return refusal ? Result<Revision>(*std::move(refusal)) : Result<Revision>(Revision{0});
  }
  if (const auto* prepare = std::get_if<core::PrepareGang>(&write.action))
    return Prepare(write.key, job, *prepare);
  if (const auto* release = std::get_if<core::ReleaseGang>(&write.action))
    return Release(write.key, job, *release);
  if (const auto* order = std::get_if<core::SetGang>(&write.action)) return Order(write.key, job, *order);
  if (const auto* make = std::get_if<core::MakeWorkload>(&write.action))
    return MakeWorkload(write.key, job, *make);
  if (std::holds_alternative<core::AdoptWorkload>(write.action))
    return Error{Code::kNotFound, "there is no ready-made workload"};
  if (const auto* resize = std::get_if<core::ResizeWorkload>(&write.action))
    return ResizeWorkload(write.key, *resize);
  if (const auto* change = std::get_if<core::SetWorkloadStatus>(&write.action))
    return SetWorkloadStatus(write.key, *change);
  if (const auto* drop = std::get_if<core::DeleteWorkload>(&write.action))
    return DeleteWorkload(write.key, *drop);
  if (let_go != nullptr) return ReleaseWorkload(write.key, *let_go);
  Delete(write.key);
  return Revision{0};
}

// Orders of a deposed leader reach no agent.
Result<Revision> World::Order(const Key& key, JobTruth& job, const core::SetGang& order) {
  if (deposed() && !options_.accepts_any_term) return Revision{0};
  // The gang of a new attempt starts from the checkpoint.
  if (!job.gang.order || job.gang.order->attempt != order.attempt) {
    job.gang.members.clear();
    job.gang.step = job.gang.checkpoint_step;
    job.gang.report.phase = rendezvous::GangPhase::kForming;
  }
  job.gang.order = order;
  job.gang.order_term = acting_term_;
  ReportChanged(key);
  return Revision{0};
}

std::optional<Error> World::RefusesPods(const std::string& what) {
  if (scheduler_.now() < namespace_ending_until_)
    return Error{Code::kForbidden, what + ": unable to create: the namespace is being terminated"};
  if (faulty() && rng_.Chance(options_.faults.refusal))
    return Error{Code::kForbidden, what + ": admission webhook \"random\" denied the request"};
  return std::nullopt;
}

Result<Revision> World::CreatePod(const Key& key, JobTruth& job, const core::CreatePod& action) {
  if (job.job.deleted) return Error{Code::kForbidden, "the job is being deleted"};
  if (job.pods.contains(action.name) || job.strays.contains(action.name) ||
      foreign_.contains({key, action.name}))
    return Error{Code::kAlreadyExists, "pod " + action.name + " exists"};
  if (auto refusal = RefusesPods(action.name)) return *refusal;
  if (quota_) {
    size_t pods = 0;
    for (const auto& [other, truth] : jobs_) pods += truth.pods.size() + truth.strays.size();
    if (pods >= static_cast<size_t>(*quota_))
      return Error{Code::kForbidden, fmt::format("{}: exceeded quota: few, used: pods={}, limited: pods={}",
                                                 action.name, pods, *quota_)};
  }
  PodTruth truth;
  truth.number = next_uid_++;
  truth.pod.name = action.name;
  truth.pod.uid = fmt::format("pod-{}", truth.number);
  truth.pod.attempt = action.attempt;
  truth.pod.rank = action.rank;
  truth.pod.gated = action.gated;
  truth.pod.tracked = true;
  if (options_.models && !action.gated) truth.pod.awaits_scheduler = "default-scheduler";
  truth.pod.created = truth.pod.started = scheduler_.now();
  truth.excluded_nodes = action.excluded_nodes;
  truth.avoided_nodes = action.avoided_nodes;
  truth.domain = action.domain;
  if (!action.excluded_nodes.empty()) pod_excluded_[truth.pod.uid] = action.excluded_nodes;
  if (!action.domain.empty()) pod_domains_[truth.pod.uid] = action.domain;
  truth.behaviour = options_.behaviour(truth.pod);
  if (faulty() && rng_.Chance(options_.faults.bad_image))
    truth.image_from = scheduler_.now() + Random(kImageMissing);
  PodTruth& pod = job.pods.emplace(action.name, std::move(truth)).first->second;
  constexpr double kCordon = 0.03;
  if (faulty() && !action.domain.empty() && !job.job.topology_preferred.empty() && cordons_.Chance(kCordon))
    Cordon(action.domain);
  if (!options_.models && !action.gated) Bind(key, pod, fmt::format("node-{}", action.rank));
  return PodChanged(key, action.name);
}

// Two requests: a patch that removes the finalizer, then the deletion.
Result<Revision> World::DeletePod(const Key& key, JobTruth& job, const core::DeletePod& action) {
  auto* pods = job.strays.contains(action.name) ? &job.strays : &job.pods;
  auto it = pods->find(action.name);
  if (it == pods->end()) return NotFound("pod " + action.name);
  PodTruth& pod = it->second;
  if (pod.pod.uid != action.uid) return Error{Code::kConflict, action.name + " has another uid"};
  if (pod.pod.tracked) {
    (void)UntrackPod(key, {action.name, action.uid});
    if (FindPod(key, action.uid) == nullptr) return NotFound("pod " + action.name);
    if (faulty() && rng_.Chance(options_.faults.half_prepared))
      return Error{Code::kUnavailable, "pod " + action.name + ": try again"};
  }
  if (!pod.pod.alive() || action.force() || !pod.pod.bound()) {
    RemovePod(key, action.name);
  } else {
    if (faulty() && rng_.Chance(options_.faults.stuck_deletion)) pod.stuck = true;
    Terminate(key, pod, action.grace);
  }
  return revision(Kind::kPod);
}

Result<Revision> World::UntrackPod(const Key& key, const core::UntrackPod& action) {
  JobTruth& job = jobs_.at(key);
  auto* pods = job.strays.contains(action.name) ? &job.strays : &job.pods;
  auto it = pods->find(action.name);
  if (it == pods->end()) return Revision{0};
  core::Pod& pod = it->second.pod;
  if (pod.uid != action.uid) return Error{Code::kConflict, action.name + " has another uid"};
  if (!std::exchange(pod.tracked, false)) return revision(Kind::kPod);
  if (pod.deleting() && (!pod.alive() || !pod.bound()))
    RemovePod(key, action.name);
  else
    PodChanged(key, action.name);
  return revision(Kind::kPod);
}

Result<Revision> World::Prepare(const Key& key, JobTruth& job, const core::PrepareGang& action) {
  if (job.job.deleted) return Error{Code::kForbidden, "the job is being deleted"};
  if (auto refusal = RefusesPods("service")) return *refusal;
  const bool half = faulty() && rng_.Chance(options_.faults.half_prepared);
  job.support = action;
  job.support_complete = !half;
  SupportChanged(key);
  if (half) return Error{Code::kUnavailable, "configmap: try again"};
  return Revision{0};
}

// Each pod is patched separately: after an error the first ones stay released.
Result<Revision> World::Release(const Key& key, JobTruth& job, const core::ReleaseGang& action) {
  for (const core::PodRef& ref : action.pods) {
    auto it = job.pods.find(ref.name);
    if (it == job.pods.end()) return NotFound("pod " + ref.name);
    if (it->second.pod.uid != ref.uid) return Error{Code::kConflict, ref.name + " has another uid"};
  }
  for (const Observer& observer : observers_)
    if (observer.released) observer.released(key, action);
  for (const core::PodRef& ref : action.pods) {
    PodTruth& pod = job.pods.at(ref.name);
    if (!pod.pod.gated) continue;
    if (faulty() && rng_.Chance(options_.faults.half_prepared / 4))
      return Error{Code::kUnavailable, "pod " + ref.name + ": try again"};
    pod.pod.gated = false;
    if (!options_.models) Bind(key, pod, fmt::format("node-{}", pod.pod.rank));
    PodChanged(key, ref.name);
  }
  return revision(Kind::kPod);
}

void World::Terminate(const Key& key, PodTruth& pod, Duration grace) {
  const Time by = scheduler_.now() + grace;
  pod.pod.delete_by = pod.pod.delete_by ? std::min(*pod.pod.delete_by, by) : by;
  PodChanged(key, pod.pod.name);
  const std::string uid = pod.pod.uid;
  const bool ignores = pod.silent || pod.behaviour.ignores_sigterm;
  const Duration leaving = ignores ? grace : std::min(grace, Random(kLeaveMax));
  const bool killed = leaving == grace;
  scheduler_.After(leaving, [this, key, uid, killed] {
    PodTruth* p = FindPod(key, uid);
    if (p != nullptr && !p->stuck && !Unreachable(*p)) EndPod(key, uid, killed ? 137 : 0, "");
  });
}

// Takes a copy of the name, which is often that of the pod.
void World::RemovePod(const Key& key, std::string name) {
  jobs_.at(key).pods.erase(name);
  jobs_.at(key).strays.erase(name);
  PodChanged(key, name);
  Collect(key);
}

void World::Collect(const Key& key) {
  JobTruth& job = jobs_.at(key);
  if (!job.job.deleted || !job.pods.empty()) return;
  if (!job.gone && OwnsWorkload(key, job.job.uid)) return;  // it blocks the deletion of its owner
  const bool changed = !job.gone;
  job.gone = true;
  job.job.uid.clear();
  if (job.strays.empty()) jobs_.erase(key);
  if (changed) JobChanged(key);
}

void World::SetTerm(Term term) {
  term_ = term;
  term_since_ = scheduler_.now();
  for (auto& [key, job] : jobs_) {
    GangState& gang = job.gang;
    gang.order.reset();
    gang.members.clear();
    gang.report = {};
    gang.report.term = static_cast<uint32_t>(term);
  }
}

// ---- changes

Revision World::JobChanged(const Key& key) {
  const Revision revision = ++revisions_[static_cast<size_t>(Kind::kJob)];
  if (auto it = jobs_.find(key); it != jobs_.end()) it->second.revision = revision;
  for (const Observer& observer : observers_)
    if (observer.job_changed) observer.job_changed(key);
  return revision;
}

Revision World::PodChanged(const Key& key, const std::string& name) {
  const Revision revision = ++revisions_[static_cast<size_t>(Kind::kPod)];
  for (const Observer& observer : observers_)
    if (observer.pod_changed) observer.pod_changed(key, name);
  return revision;
}

void World::SupportChanged(const Key& key) {
  for (const Observer& observer : observers_)
    if (observer.support_changed) observer.support_changed(key);
}

void World::NodeChanged(const std::string& name) {
  nodes_changed_at_ = scheduler_.now();
  for (const Observer& observer : observers_)
    if (observer.node_changed) observer.node_changed(name);
}

void World::ReportChanged(const Key& key) {
  for (const Observer& observer : observers_)
    if (observer.report_changed) observer.report_changed(key);
}

}  // namespace ringmaster::sim
