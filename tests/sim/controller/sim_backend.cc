// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/controller/sim_backend.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "operator/core/decide/decide.h"

namespace ringmaster::sim {

using control::Key;
using control::Kind;
using control::Revision;

namespace {

constexpr Duration kLate = seconds(8);

void Shift(Time& at, Duration by) {
  if (at != Time{}) at += by;
}
void Shift(std::optional<Time>& at, Duration by) {
  if (at) Shift(*at, by);
}

// Returns the status with every time `by` later. Outside a process the times are wall-clock times, inside
// they are relative to the process's clock.
core::Status Shifted(core::Status status, Duration by) {
  if (by == Duration{0}) return status;
  core::Ledger& l = status.ledger;
  for (Time* at : {&l.attempt_since, &l.accounted}) Shift(*at, by);
  for (std::optional<Time>* at :
       {&l.not_before, &l.ready_since, &l.stop_since, &l.active_since, &l.start_time, &l.completion_time})
    Shift(*at, by);
  for (core::ExcludedNode& node : l.excluded) Shift(node.until, by);
  for (core::Suspect& suspect : l.suspects) Shift(suspect.since, by);
  for (core::Absence& absence : l.absent) Shift(absence.since, by);
  if (l.last_failure) Shift(l.last_failure->at, by);
  for (core::Condition& condition : status.display.conditions) Shift(condition.since, by);
  Shift(status.display.progress_at, by);
  return status;
}

}  // namespace

SimBackend::SimBackend(World& world, Scheduler& scheduler, const Faults& faults, Options options)
    : world_(world), scheduler_(scheduler), faults_(faults), options_(options), rng_(options.seed) {
  World::Observer observer;
  observer.job_changed = [this](const Key& key) { OnJob(key); };
  observer.pod_changed = [this](const Key& key, const std::string& name) { OnPod(key, name); };
  observer.report_changed = [this](const Key& key) {
    if (Alive()) Notify(key);
  };
  observer.support_changed = [this](const Key& key) { OnSupport(key); };
  observer.workload_changed = [this](const Key& key) { OnWorkloads(key); };
  observer.default_queue_changed = [this] { OnDefaultQueue(); };
  observer.node_changed = [this](const std::string& name) { OnNode(name); };
  world_.Observe(std::move(observer));
}

void SimBackend::Restart(World::Term term) {
  process_ += 1;
  term_ = term;
  clock_ = Duration{0};
  plan_due_ = false;
  subscribers_.clear();
  cache_.clear();
  planner_ = core::RoomPlanner();
  not_ready_.clear();
  boots_.clear();
  restarts_.clear();
  default_queue_ = world_.default_queue();
  for (const auto& [name, node] : world_.nodes()) LearnNode(name, node);
  for (const auto& [key, job] : world_.jobs()) ReadNow(key);  // also what is left of deleted jobs
  for (const Key& key : world_.WorkloadKeys()) ReadNow(key);
  for (const Kind kind : {Kind::kJob, Kind::kPod, Kind::kWorkload})
    seen_[static_cast<size_t>(kind)] = world_.revision(kind);
  for (Time& at : last_delivery_) at = scheduler_.now();
}

void SimBackend::Kill() {
  process_ += 1;
  term_ = 0;
  subscribers_.clear();
}

std::optional<control::Snapshot> SimBackend::Read(const Key& key, const Cached*& looks) const {
  looks = nullptr;
  auto it = cache_.find(key);
  if (it == cache_.end()) return std::nullopt;
  const Cached& cached = it->second;
  control::Snapshot snapshot;
  core::Observed& o = snapshot.observed;
  if (!cached.job) {
    for (const WorkloadTruth& w : cached.workloads)
      if (w.workload.held) o.stray_workloads.push_back({w.workload.name, w.workload.uid});
    if (cached.pods.empty() && o.stray_workloads.empty()) return std::nullopt;
    o.job.name = key.name;
    o.job.deleted = true;
    for (const auto& [name, pod] : cached.pods) o.strays.push_back(pod);
    return snapshot;
  }
  const JobPart& job = *cached.job;
  snapshot.job_revision = job.revision;
  o.job = job.job;
  o.status = Shifted(job.status, -clock_);
  o.job.allowed = core::AllowedWorkers(o.status.ledger);
  o.preempt = planner_.RequestTo(key.ToString(), job.job.uid, o.status.ledger.attempt);
  if (o.status.ledger.preemption) o.preemptor_waits = planner_.Waits(*o.status.ledger.preemption);
  o.pods.reserve(cached.pods.size());
  for (const auto& [name, pod] : cached.pods)
    (cached.owners.at(pod.uid) == job.job.uid ? o.pods : o.strays).push_back(pod);
  std::sort(o.pods.begin(), o.pods.end(), [](const core::Pod& a, const core::Pod& b) {
    return std::pair(a.attempt, a.rank) < std::pair(b.attempt, b.rank);
  });
  ReadQuota(cached, o);
  o.provider = world_.provider();
  o.all_at_once = o.provider == core::GangProvider::kScheduler;
  if (!world_.nodes().empty()) o.not_ready_nodes.emplace(not_ready_.begin(), not_ready_.end());
  for (const auto& [name, at] : restarts_) o.restarted_nodes.push_back({name, at});
  o.prepared = cached.support;
  o.untried = options_.must_try && cached.tried_attempt != o.status.ledger.attempt;
  // The coordinator runs in the same process. That of a deposed leader has no agents.
  o.order = cached.order;
  if (const JobTruth* truth = world_.Find(key);
      truth != nullptr && truth->job.uid == job.job.uid && job.job.in_place && o.order)
    o.report = term_ == world_.term() ? truth->gang.report : rendezvous::Report{};
  looks = &cached;
  return snapshot;
}

std::optional<control::Snapshot> SimBackend::Observe(const Key& key) const {
  const Cached* cached = nullptr;
  std::optional<control::Snapshot> snapshot = Read(key, cached);
  if (cached == nullptr) return snapshot;
  core::Observed& o = snapshot->observed;
  if (core::ReservesRoom(o) && !world_.nodes().empty()) {
    const core::Observed begun =
        core::NotBegun(o.status.ledger) ? core::Begun(o, scheduler_.now()) : core::Observed(o);
    o.fit = planner_.FitOf(key.ToString(), GangToPlace(key, *cached, begun), begun);
  }
  if (!o.fit.missing.empty()) o.fit.preempts = planner_.PreemptsFor(key.ToString(), o.job.uid);
  return snapshot;
}

std::optional<control::Snapshot> SimBackend::TakeTurn(const Key& key) {
  const Cached* cached = nullptr;
  std::optional<control::Snapshot> snapshot = Read(key, cached);
  if (cached == nullptr) return snapshot;
  core::Observed& o = snapshot->observed;
  const std::string name = key.ToString();
  if (core::ReservesRoom(o) && !world_.nodes().empty()) {
    const Time now = scheduler_.now();
    const core::Observed begun = core::NotBegun(o.status.ledger) ? core::Begun(o, now) : core::Observed(o);
    const core::RoomPlanner::Turn turn =
        planner_.Update(name, o.job.uid, GangToPlace(key, *cached, begun), begun, now);
    o.fit = turn.fit;
    core::RoomQueue::Standing& standing = cache_[key].standing;
    standing = core::StandingOf(begun);
    standing.priority = PriorityOf(key);
    standing.created = AgeOf(key);
    if (turn.plan) PlanSoon();
  } else {
    planner_.Leave(name, o.job.uid, true);
  }
  if (!o.fit.missing.empty()) o.fit.preempts = planner_.PreemptsFor(name, o.job.uid);
  if (!core::KeepsPlaces(o) && planner_.GiveUpPlaces(name, o.job.uid)) {
    planner_.Refresh();
    NotifyWaiting();
  }
  return snapshot;
}

Revision SimBackend::Seen(Kind kind, const Key&) const { return seen_[static_cast<size_t>(kind)]; }

std::vector<Key> SimBackend::Keys() const {
  std::vector<Key> keys;
  for (const auto& [key, cached] : cache_)
    if (cached.job || !cached.pods.empty() || !cached.workloads.empty()) keys.push_back(key);
  std::stable_sort(keys.begin(), keys.end(), [&](const Key& one, const Key& other) {
    return std::pair(-PriorityOf(one), AgeOf(one)) < std::pair(-PriorityOf(other), AgeOf(other));
  });
  return keys;
}

void SimBackend::Subscribe(std::function<void(const Key&)> changed) {
  subscribers_.push_back(std::move(changed));
}

void SimBackend::Notify(const Key& key) {
  planner_.HolderChanged(key.ToString());
  for (const auto& subscriber : subscribers_) subscriber(key);
}

// Notifies the jobs that would find room now.
void SimBackend::NotifyWaiting() {
  for (core::RoomQueue::Sweep sweep; !sweep.done();)
    for (const std::string& job : planner_.Ready(sweep)) Notify(Key::Parse(job));
}

int32_t SimBackend::PriorityOf(const Key& key) const {
  const auto it = options_.priorities.find(key);
  return it == options_.priorities.end() ? 0 : it->second;
}

int64_t SimBackend::AgeOf(const Key& key) const {
  const auto it = options_.ages.find(key);
  return it == options_.ages.end() ? 0 : it->second;
}

void SimBackend::NotifyOn(const std::string& node) {
  for (const auto& [key, cached] : cache_) {
    const bool there = std::any_of(cached.pods.begin(), cached.pods.end(),
                                   [&](const auto& item) { return item.second.node == node; });
    const auto suspected = [&](const core::Suspect& suspect) { return suspect.node == node; };
    const bool suspected_node =
        cached.job && std::any_of(cached.job->status.ledger.suspects.begin(),
                                  cached.job->status.ledger.suspects.end(), suspected);
    if (there || suspected_node) Notify(key);
  }
}

Duration SimBackend::Random(Duration most) {
  if (!world_.faulty()) most = std::min<Duration>(most, milliseconds(20));
  return Duration(static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(most.count()) + 1)));
}

// ---- the watch

void SimBackend::Deliver(Stream stream, std::function<void()> what) {
  // Changes of one kind never overtake each other.
  last_delivery_[stream] = std::max(last_delivery_[stream], scheduler_.now() + Random(faults_.watch_lag_max));
  scheduler_.At(last_delivery_[stream], [this, process = process_, what = std::move(what)] {
    if (process == process_) what();
  });
}

void SimBackend::OnJob(const Key& key) {
  if (!Alive()) return;
  std::optional<JobPart> part;
  if (const JobTruth* truth = world_.Find(key))
    part = JobPart{truth->job, truth->status, truth->revision, truth->queue};
  Deliver(kJobs, [this, key, part = std::move(part), revision = world_.revision(Kind::kJob)]() mutable {
    Cached& cached = cache_[key];
    if (revision > cached.floor[0]) {
      // Another job with the same name starts without the cached state.
      if (!part || (cached.job && cached.job->job.uid != part->job.uid)) {
        cached.order.reset();
        cached.support.reset();
        cached.tried_attempt = 0;
      }
      cached.job = std::move(part);
      LearnJob(key, cached);
    }
    seen_[0] = std::max(seen_[0], revision);
    Notify(key);
    PlanSoon();
  });
}

std::optional<SimBackend::OwnedPod> SimBackend::PodNow(const Key& key, const std::string& name) const {
  if (const JobTruth* truth = world_.Find(key))
    if (auto it = truth->pods.find(name); it != truth->pods.end())
      return OwnedPod{it->second.pod, truth->job.uid};
  const auto& strays = world_.StraysOf(key);
  const auto it = strays.find(name);
  if (it == strays.end() || (it->second.orphaned && !it->second.pod.tracked)) return std::nullopt;
  return OwnedPod{it->second.pod, std::string()};
}

void SimBackend::OnPod(const Key& key, const std::string& name) {
  if (!Alive()) return;
  Deliver(kPods,
          [this, key, name, pod = PodNow(key, name), revision = world_.revision(Kind::kPod)]() mutable {
            Cached& cached = cache_[key];
            bool frees = false;
            if (revision > cached.floor[1]) {
              frees = !pod || !pod->first.alive();
              if (pod) {
                cached.owners[pod->first.uid] = pod->second;
                LearnPod(key, cached, std::move(pod->first));
              } else {
                ForgetPod(key, cached, name);
              }
            }
            seen_[1] = std::max(seen_[1], revision);
            Notify(key);
            if (frees) NotifyWaiting();
            PlanSoon();
          });
}

void SimBackend::OnSupport(const Key& key) {
  if (!Alive()) return;
  const JobTruth* truth = world_.Find(key);
  std::optional<core::PrepareGang> support;
  if (truth != nullptr && truth->support_complete) support = truth->support;
  const std::string uid = truth != nullptr ? truth->job.uid : "";
  Deliver(kSupport, [this, key, uid, support, version = ++support_version_] {
    Cached& cached = cache_[key];
    if (version <= cached.support_version || !cached.job || cached.job->job.uid != uid) return;
    cached.support_version = version;
    cached.support = support;
    Notify(key);
  });
}

void SimBackend::OnWorkloads(const Key& key) {
  if (!Alive()) return;
  Deliver(kWorkloads,
          [this, key, all = world_.WorkloadsOf(key), revision = world_.revision(Kind::kWorkload)]() mutable {
            Cached& cached = cache_[key];
            if (revision > cached.floor[2]) cached.workloads = std::move(all);
            seen_[2] = std::max(seen_[2], revision);
            Notify(key);
          });
}

void SimBackend::OnDefaultQueue() {
  if (!Alive()) return;
  Deliver(kDefaultQueue, [this, exists = world_.default_queue()] {
    default_queue_ = exists;
    for (const auto& [key, cached] : cache_) Notify(key);
  });
}

bool SimBackend::HasQueue(const Cached& cached) {
  return !cached.job->queue.empty() ||
         std::any_of(cached.workloads.begin(), cached.workloads.end(), [&](const WorkloadTruth& w) {
           return w.owner_uid == cached.job->job.uid && !w.workload.finished;
         });
}

void SimBackend::ReadQuota(const Cached& cached, core::Observed& o) const {
  core::Quota quota;
  quota.api = core::Quota::Api::kRead;
  quota.queue = cached.job->queue;
  for (const WorkloadTruth& w : cached.workloads) {
    if (w.owner_uid == o.job.uid)
      quota.workloads.push_back(w.workload);
    else if (w.workload.held)
      o.stray_workloads.push_back({w.workload.name, w.workload.uid});
  }
  o.quota = std::move(quota);
  core::ChooseQueue(o, default_queue_);
  if (o.quota->queue.empty() && o.quota->workloads.empty()) return o.quota.reset();
  core::LimitToQuota(o);
}

void SimBackend::OnNode(const std::string& name) {
  if (!Alive()) return;
  Deliver(kNodes, [this, name, node = world_.nodes().at(name)] {
    LearnNode(name, node);
    NotifyWaiting();
    NotifyOn(name);
  });
}

void SimBackend::LearnNode(const std::string& name, const NodeTruth& node) {
  const auto boot = boots_.try_emplace(name, node.restarted).first;
  if (std::exchange(boot->second, node.restarted) != node.restarted) restarts_[name] = scheduler_.now();
  const bool lost = node.reported_since.has_value();
  core::NodeFacts facts;
  facts.name = name;
  facts.allocatable = {{kPlace, node.pod_capacity}, {"pods", 100}};
  facts.ready = !lost;
  facts.unschedulable = node.cordoned;
  if (!node.domain.empty()) facts.labels[kRack] = node.domain;
  planner_.capacity().SetNode(std::move(facts));
  if (lost)
    not_ready_.insert(name);
  else
    not_ready_.erase(name);
}

// The world stamps pods with its own wall clock. A time in the future of this process's clock is replaced by
// the time at which the process first observed it.
void SimBackend::LearnPod(const Key& key, Cached& cached, core::Pod pod) {
  const Time now = scheduler_.now();
  auto it = cached.pods.find(pod.name);
  const core::Pod* before = it != cached.pods.end() && it->second.uid == pod.uid ? &it->second : nullptr;
  const auto translate = [&](Time at, Time known) {
    if (at == Time{}) return at;
    at -= clock_;
    return at <= now ? at : known != Time{} && known <= now ? known : now;
  };
  if (clock_ != Duration{0}) {
    pod.created = translate(pod.created, before != nullptr ? before->created : Time{});
    pod.placed = translate(pod.placed, before != nullptr ? before->placed : Time{});
    pod.started = translate(pod.started, Time{});
    if (pod.ended) pod.ended = translate(*pod.ended, Time{});
    if (pod.unreachable_since)
      pod.unreachable_since =
          translate(*pod.unreachable_since,
                    before != nullptr && before->unreachable_since ? *before->unreachable_since : Time{});
  }
  const std::string id = PodId(key, pod.name);
  if (before == nullptr && it != cached.pods.end()) planner_.capacity().RemovePod(id);  // of its predecessor
  const core::Capacity::Shape shape = ShapeOf(cached.job ? cached.job->job : core::Job{},
                                              world_.ExcludedOfPod(pod.uid), world_.DomainOfPod(pod.uid));
  if (!pod.alive()) {
    planner_.capacity().RemovePod(id);
  } else if (pod.bound()) {
    planner_.capacity().SetPod(id, {{kPlace, 1}}, pod.node);
  } else if (pod.gated) {
    planner_.capacity().SetGated(id, shape);
  } else {
    planner_.capacity().ExpectPod(id, shape);
  }
  const std::string name = pod.name;
  cached.pods[name] = std::move(pod);
}

void SimBackend::ForgetPod(const Key& key, Cached& cached, const std::string& name) {
  auto it = cached.pods.find(name);
  if (it == cached.pods.end()) return;
  planner_.capacity().RemovePod(PodId(key, name));
  cached.owners.erase(it->second.uid);
  cached.pods.erase(it);
}

void SimBackend::ReadNow(const Key& key) {
  Cached& cached = cache_[key];
  const JobTruth* truth = world_.Find(key);
  if (!cached.job || truth == nullptr || truth->job.uid != cached.job->job.uid) {
    cached.order.reset();
    cached.tried_attempt = 0;
  }
  cached.job.reset();
  cached.floor[0] = world_.revision(Kind::kJob);
  cached.floor[1] = world_.revision(Kind::kPod);
  cached.floor[2] = world_.revision(Kind::kWorkload);
  cached.workloads = world_.WorkloadsOf(key);
  cached.support_version = ++support_version_;
  cached.support.reset();
  std::set<std::string> names;
  for (const auto& [name, pod] : cached.pods) names.insert(name);
  for (const auto& [name, pod] : world_.StraysOf(key)) names.insert(name);
  if (truth != nullptr) {
    for (const auto& [name, pod] : truth->pods) names.insert(name);
    cached.job = JobPart{truth->job, truth->status, truth->revision, truth->queue};
    if (truth->support_complete) cached.support = truth->support;
  }
  LearnJob(key, cached);
  for (const std::string& name : names) {
    if (auto pod = PodNow(key, name)) {
      cached.owners[pod->first.uid] = pod->second;
      LearnPod(key, cached, std::move(pod->first));
    } else {
      ForgetPod(key, cached, name);
    }
  }
}

// ---- requests

void SimBackend::Execute(control::Write write, std::function<void(Result<Revision>)> done) {
  if (const auto* order = std::get_if<core::SetGang>(&write.action)) {  // a call within the process
    const Result<Revision> result = world_.Apply(write, term_);
    if (result.ok()) cache_[write.key].order = *order;
    Notify(write.key);
    done(result);
    return;
  }
  if (auto* set = std::get_if<core::SetStatus>(&write.action)) set->status = Shifted(set->status, clock_);
  if (auto* create = std::get_if<core::CreatePod>(&write.action))
    if (const Cached& cached = cache_[write.key]; cached.job) {
      const core::Job& job = cached.job->job;
      create->domain = DomainOf(write.key, job, create->name);
      const bool reserves = (!create->gated || !job.TopologyKey().empty()) && !world_.nodes().empty() &&
                            !job.autoscaler && world_.provider() == core::GangProvider::kGate;
      if (reserves && !planner_.capacity().ReservedFor(PodId(write.key, create->name)))
        return done(Error{Code::kConflict, "no place is reserved for " + create->name});
    }
  if (const auto* reserve = std::get_if<core::ReserveRoom>(&write.action)) {  // within the process, too
    const Result<Revision> result = Reserve(write, *reserve);
    Notify(write.key);
    done(result);
    return;
  }
  if (const auto* release = std::get_if<core::ReleaseGang>(&write.action);
      release != nullptr && !world_.nodes().empty()) {
    const Cached& cached = cache_[write.key];
    const bool pressed = cached.job && cached.job->job.autoscaler;
    for (const core::PodRef& ref : release->pods) {
      auto it = cached.pods.find(ref.name);
      if (it == cached.pods.end() || it->second.uid != ref.uid)
        return done(Error{Code::kNotFound, "pod " + ref.name});
      if (!pressed && it->second.gated && !planner_.capacity().ReservedFor(PodId(write.key, ref.name)))
        return done(Error{Code::kConflict, "no place is reserved for " + ref.name});
    }
  }
  Duration there = Random(faults_.request_max);
  const Duration back = Random(faults_.request_max);
  if (Chance(faults_.late_request)) there += Random(kLate);
  if (Chance(faults_.lost_request)) {
    const Code code = rng_.Chance(0.5) ? Code::kUnavailable : Code::kAmbiguous;
    scheduler_.After(there + back,
                     [this, process = process_, write = std::move(write), done = std::move(done), code] {
                       const Result<Revision> result = Error{code, "request lost"};
                       if (process == process_) Acknowledge(write, result, support_version_);
                       done(result);
                     });
    return;
  }
  if (std::holds_alternative<core::SetStatus>(write.action) && Chance(faults_.conflict)) {
    scheduler_.After(there + back, [done = std::move(done)] {
      done(Error{Code::kConflict, "spurious conflict"});
    });
    return;
  }
  Send(std::move(write), there, back, Chance(faults_.lost_reply), std::move(done));
}

void SimBackend::Send(control::Write write, Duration there, Duration back, bool lost_reply,
                      std::function<void(Result<Revision>)> done) {
  scheduler_.After(there, [this, write = std::move(write), done = std::move(done), back, lost_reply,
                           term = term_, process = process_]() mutable {
    Result<Revision> result = world_.Apply(write, term);
    const uint64_t version = support_version_;
    if (lost_reply) result = Error{Code::kAmbiguous, "reply lost"};
    scheduler_.After(back,
                     [this, write = std::move(write), done = std::move(done), result, process, version] {
                       if (process == process_) Acknowledge(write, result, version);
                       done(result);
                     });
  });
}

// Applies what an answer says, before the watch delivers it. `version`: that of the supporting objects when
// the write was done.
void SimBackend::Acknowledge(const control::Write& write, const Result<Revision>& result, uint64_t version) {
  Cached& cached = cache_[write.key];
  if (const auto* tried = std::get_if<core::TryPods>(&write.action); tried != nullptr && result.ok()) {
    if (cached.job && cached.job->job.uid == write.job_uid) cached.tried_attempt = tried->attempt;
    Notify(write.key);
  }
  if (const auto* prepare = std::get_if<core::PrepareGang>(&write.action);
      prepare != nullptr && result.ok()) {
    // A newer watch event wins: an object may have been deleted since.
    if (!cached.job || cached.job->job.uid != write.job_uid || version <= cached.support_version) return;
    cached.support_version = version;
    cached.support = *prepare;
    Notify(write.key);
  }
}

void SimBackend::ReadThrough(const Key& key, std::function<void(Status)> done) {
  const bool fails = Chance(faults_.failed_read);
  const Duration there = Random(faults_.request_max);
  const Duration back = Random(faults_.request_max);
  scheduler_.After(there, [this, key, done = std::move(done), fails, back, process = process_] {
    if (process == process_ && !fails) {
      ReadNow(key);
      Notify(key);
    }
    Status status = fails ? Status(Error{Code::kUnavailable, "read failed"}) : Ok();
    scheduler_.After(back, [done, status] { done(status); });
  });
}
}  // namespace ringmaster::sim
