#include "operator/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "operator/sim/gang_model.h"

namespace ringmaster::sim {

using control::Key;
using control::Kind;
using control::Revision;

namespace {

constexpr Duration kStartMax = milliseconds(1500);  // Pending -> Running
constexpr Duration kLeaveMax = milliseconds(3000);  // SIGTERM -> end, for a well-behaved program
constexpr Duration kCollectGrace = milliseconds(2000);

Error NotFound(const std::string& what) { return {Code::kNotFound, "no " + what}; }

}  // namespace

World::World(Scheduler& scheduler, Options options)
    : scheduler_(scheduler), options_(std::move(options)), rng_(options_.seed) {
  if (!options_.behaviour) options_.behaviour = [](const core::Pod&) { return Behaviour{}; };
  if (options_.models) scheduler_.After(GangModel::kTick, [this] { Tick(); });
}

const JobTruth* World::Find(const Key& key) const {
  auto it = jobs_.find(key);
  return it == jobs_.end() ? nullptr : &it->second;
}

Duration World::Random(Duration most) {
  return Duration(static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(most.count()) + 1)));
}

// ---- the user

void World::Submit(const Key& key, core::Job job, int64_t total_steps) {
  JobTruth truth;
  job.uid = fmt::format("job-{}", next_uid_++);
  truth.job = std::move(job);
  truth.gang.total_steps = total_steps;
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

void World::Delete(const Key& key) {
  auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second.job.deleted) return;
  it->second.job.deleted = true;
  JobChanged(key);
  std::vector<std::string> names;
  for (const auto& [name, pod] : it->second.pods) names.push_back(name);
  for (const std::string& name : names) {
    PodTruth& pod = it->second.pods.at(name);
    if (pod.pod.alive() && !pod.stuck)
      TellToEnd(key, pod, kCollectGrace);
    else
      RemovePod(key, name);
    if (!jobs_.contains(key)) return;
  }
  Collect(key);
}

void World::DeletePodByHand(const Key& key, const std::string& name) {
  auto it = jobs_.find(key);
  if (it == jobs_.end()) return;
  auto pod = it->second.pods.find(name);
  if (pod != it->second.pods.end() && !pod->second.pod.deleting()) TellToEnd(key, pod->second, kCollectGrace);
}

// ---- the API server

Result<Revision> World::Apply(const control::Write& write) {
  auto it = jobs_.find(write.key);
  if (it == jobs_.end() || it->second.job.uid != write.job_uid) return NotFound("job " + write.job_uid);
  JobTruth& job = it->second;
  if (const auto* set = std::get_if<core::SetStatus>(&write.action)) {
    if (write.if_revision && *write.if_revision != job.revision)
      return Error{Code::kConflict, fmt::format("revision {} is not {}", job.revision, *write.if_revision)};
    job.status = set->status;
    return JobChanged(write.key);
  }
  if (const auto* create = std::get_if<core::CreatePod>(&write.action))
    return CreatePod(write.key, job, *create);
  if (const auto* remove = std::get_if<core::DeletePod>(&write.action))
    return DeletePod(write.key, job, *remove);
  if (const auto* order = std::get_if<core::SetGang>(&write.action)) {
    // Another attempt is another gang: it starts from the checkpoint.
    if (!job.gang.order || job.gang.order->attempt != order->attempt) {
      job.gang.members.clear();
      job.gang.step = job.gang.checkpoint_step;
      job.gang.report.phase = rendezvous::GangPhase::kForming;
    }
    job.gang.order = *order;
    ReportChanged(write.key);
    return Revision{0};
  }
  Delete(write.key);
  return Revision{0};
}

Result<Revision> World::CreatePod(const Key& key, JobTruth& job, const core::CreatePod& action) {
  if (job.job.deleted) return Error{Code::kForbidden, "the job is being deleted"};
  if (job.pods.contains(action.name)) return Error{Code::kAlreadyExists, "pod " + action.name + " exists"};
  PodTruth truth;
  truth.pod.name = action.name;
  truth.pod.uid = fmt::format("pod-{}", next_uid_++);
  truth.pod.attempt = action.attempt;
  truth.pod.rank = action.rank;
  truth.pod.node = fmt::format("node-{}", action.rank);
  truth.pod.started = scheduler_.now();
  truth.behaviour = options_.behaviour(truth.pod);
  const std::string uid = truth.pod.uid;
  job.pods.emplace(action.name, std::move(truth));
  scheduler_.After(Random(kStartMax), [this, key, uid] { StartPod(key, uid); });
  return PodChanged(key, action.name);
}

Result<Revision> World::DeletePod(const Key& key, JobTruth& job, const core::DeletePod& action) {
  auto it = job.pods.find(action.name);
  if (it == job.pods.end()) return NotFound("pod " + action.name);
  if (it->second.pod.uid != action.uid) return Error{Code::kConflict, action.name + " is another one by now"};
  if (!it->second.pod.alive() || action.force()) {
    RemovePod(key, action.name);
  } else {
    if (faulty() && rng_.Chance(options_.faults.stuck_deletion)) it->second.stuck = true;
    TellToEnd(key, it->second, action.grace);
  }
  return revision(Kind::kPod);
}

void World::TellToEnd(const Key& key, PodTruth& pod, Duration grace) {
  const Time by = scheduler_.now() + grace;
  pod.pod.delete_by = pod.pod.delete_by ? std::min(*pod.pod.delete_by, by) : by;
  PodChanged(key, pod.pod.name);
  const std::string uid = pod.pod.uid;
  const bool deaf = pod.silent || pod.behaviour.ignores_sigterm;
  const Duration leaving = deaf ? grace : std::min(grace, Random(kLeaveMax));
  const bool killed = leaving == grace;
  scheduler_.After(leaving, [this, key, uid, killed] {
    PodTruth* p = FindPod(key, uid);
    if (p != nullptr && !p->stuck) EndPod(key, uid, killed ? 137 : 0, "");
  });
}

void World::RemovePod(const Key& key, const std::string& name) {
  jobs_.at(key).pods.erase(name);
  PodChanged(key, name);
  Collect(key);
}

void World::Collect(const Key& key) {
  const JobTruth& job = jobs_.at(key);
  if (!job.job.deleted || !job.pods.empty()) return;
  jobs_.erase(key);
  JobChanged(key);
}

// ---- the nodes

PodTruth* World::FindPod(const Key& key, const std::string& uid) {
  auto it = jobs_.find(key);
  if (it == jobs_.end()) return nullptr;
  for (auto& [name, pod] : it->second.pods)
    if (pod.pod.uid == uid) return &pod;
  return nullptr;
}

void World::StartPod(const Key& key, const std::string& uid) {
  PodTruth* p = FindPod(key, uid);
  if (p == nullptr || p->pod.phase != core::PodPhase::kPending || p->pod.deleting()) return;
  p->pod.phase = core::PodPhase::kRunning;
  p->pod.started = scheduler_.now();
  PodChanged(key, p->pod.name);
  if (p->behaviour.ends_after) {
    scheduler_.After(*p->behaviour.ends_after, [this, key, uid] {
      if (const PodTruth* q = FindPod(key, uid))
        EndPod(key, uid, q->behaviour.exit_code, q->behaviour.message);
    });
  }
}

void World::EndPod(const Key& key, const std::string& uid, int32_t exit_code, const std::string& message) {
  PodTruth* p = FindPod(key, uid);
  if (p == nullptr || !p->pod.alive()) return;
  p->pod.phase = exit_code == 0 ? core::PodPhase::kSucceeded : core::PodPhase::kFailed;
  p->pod.exit_code = exit_code;
  p->pod.message = message;
  p->pod.ended = scheduler_.now();
  const std::string name = p->pod.name;
  if (p->pod.deleting())
    RemovePod(key, name);
  else
    PodChanged(key, name);
}

void World::Tick() {
  std::vector<Key> keys;
  for (const auto& [key, job] : jobs_) keys.push_back(key);
  for (const Key& key : keys) {
    if (faulty()) BreakThings(key, jobs_.at(key));
    GangModel::Tick(*this, key);
  }
  scheduler_.After(GangModel::kTick, [this] { Tick(); });
}

void World::BreakThings(const Key& key, JobTruth& job) {
  const double per_tick = ToSeconds(GangModel::kTick);
  const Faults& f = options_.faults;
  std::vector<std::pair<std::string, int32_t>> crashed;
  for (auto& [name, p] : job.pods) {
    if (p.pod.phase != core::PodPhase::kRunning || p.stuck) continue;
    if (rng_.Chance(f.pod_crash * per_tick)) {
      static constexpr int32_t kCodes[] = {1, 137, 139, 75, 3, 64};
      // A bad configuration is rare: it ends the run.
      crashed.emplace_back(p.pod.uid, kCodes[rng_.Below(rng_.Chance(0.02) ? 6 : 5)]);
    } else if (rng_.Chance(f.pod_silent * per_tick)) {
      p.silent = true;
    } else if (rng_.Chance(f.node_lost * per_tick)) {
      p.stuck = true;
      p.pod.unreachable_since = scheduler_.now();
      PodChanged(key, name);
    }
  }
  for (const auto& [uid, code] : crashed) EndPod(key, uid, code, "crashed");
}

void World::LoseCoordinator(const Key& key) {
  auto it = jobs_.find(key);
  if (it == jobs_.end()) return;
  GangState& gang = it->second.gang;
  gang.order.reset();
  gang.members.clear();
  // The term is part of a generation: it goes on rising.
  const rendezvous::Generation generation = gang.report.generation;
  gang.report = {};
  gang.report.generation = generation + 1000;
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

void World::ReportChanged(const Key& key) {
  for (const Observer& observer : observers_)
    if (observer.report_changed) observer.report_changed(key);
}

}  // namespace ringmaster::sim
