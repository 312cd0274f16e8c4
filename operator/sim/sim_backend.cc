// SPDX-License-Identifier: Apache-2.0

#include "operator/sim/sim_backend.h"

#include <algorithm>
#include <utility>

namespace ringmaster::sim {

using control::Key;
using control::Kind;
using control::Revision;

namespace {

constexpr const char* kPlace = "place";  // every pod takes one; nodes have some
constexpr Duration kLate = seconds(8);

core::Capacity::Shape ShapeWithout(const std::vector<std::string>& excluded) {
  auto shape = std::make_shared<core::PodShape>();
  shape->requests[kPlace] = 1;
  if (!excluded.empty()) shape->affinity = {{{"metadata.name", core::Requirement::Op::kNotIn, excluded}}};
  return shape;
}

core::Capacity::Shape ShapeOf(const core::Ledger& ledger, Time now) {
  std::vector<std::string> excluded;
  for (const core::ExcludedNode& node : ledger.excluded)
    if (node.until > now) excluded.push_back(node.name);
  return ShapeWithout(excluded);
}

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

bool Gated(const core::Pod& pod) { return pod.gated && pod.alive() && !pod.deleting(); }

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
  observer.node_changed = [this](const std::string& name) { OnNode(name); };
  world_.Observe(std::move(observer));
}

void SimBackend::Restart(World::Term term) {
  process_ += 1;
  term_ = term;
  clock_ = Duration{0};
  subscribers_.clear();
  cache_.clear();
  capacity_ = {};
  not_ready_.clear();
  boots_.clear();
  restarts_.clear();
  for (const auto& [name, node] : world_.nodes()) LearnNode(name, node);
  for (const auto& [key, job] : world_.jobs()) ReadNow(key);
  for (const Kind kind : {Kind::kJob, Kind::kPod}) seen_[static_cast<size_t>(kind)] = world_.revision(kind);
  for (Time& at : last_delivery_) at = scheduler_.now();
}

void SimBackend::Kill() {
  process_ += 1;
  term_ = 0;
  subscribers_.clear();
}

std::optional<control::Snapshot> SimBackend::Observe(const Key& key) const {
  auto it = cache_.find(key);
  if (it == cache_.end() || !it->second.job) return std::nullopt;
  const Cached& cached = it->second;
  const JobPart& job = *cached.job;
  control::Snapshot snapshot;
  snapshot.job_revision = job.revision;
  core::Observed& o = snapshot.observed;
  o.job = job.job;
  o.status = Shifted(job.status, -clock_);
  o.pods.reserve(cached.pods.size());
  int32_t gated = 0;
  for (const auto& [name, pod] : cached.pods) {
    o.pods.push_back(pod);
    gated += Gated(pod) && pod.attempt == o.status.ledger.attempt ? 1 : 0;
  }
  std::sort(o.pods.begin(), o.pods.end(), [](const core::Pod& a, const core::Pod& b) {
    return std::pair(a.attempt, a.rank) < std::pair(b.attempt, b.rank);
  });
  o.provider = world_.provider();
  if (!world_.nodes().empty()) o.not_ready_nodes.emplace(not_ready_.begin(), not_ready_.end());
  for (const auto& [name, at] : restarts_) o.restarted_nodes.push_back({name, at});
  o.prepared = cached.support;
  if (gated > 0 && !world_.nodes().empty())
    o.fit = capacity_.FitOf(*ShapeOf(o.status.ledger, scheduler_.now()), gated);
  // The coordinator runs in the same process. That of a deposed leader has no agents.
  o.order = cached.order;
  if (const JobTruth* truth = world_.Find(key);
      truth != nullptr && truth->job.uid == job.job.uid && job.job.native && o.order)
    o.report = term_ == world_.term() ? truth->gang.report : rendezvous::Report{};
  return snapshot;
}

Revision SimBackend::Seen(Kind kind, const Key&) const { return seen_[static_cast<size_t>(kind)]; }

std::vector<Key> SimBackend::Keys() const {
  std::vector<Key> keys;
  for (const auto& [key, cached] : cache_)
    if (cached.job) keys.push_back(key);
  return keys;
}

void SimBackend::Subscribe(std::function<void(const Key&)> changed) {
  subscribers_.push_back(std::move(changed));
}

void SimBackend::Notify(const Key& key) {
  for (const auto& subscriber : subscribers_) subscriber(key);
}

// Notifies the jobs with gated pods: there may be room for them now.
void SimBackend::NotifyWaiting() {
  for (const auto& [key, cached] : cache_)
    if (std::any_of(cached.pods.begin(), cached.pods.end(),
                    [](const auto& item) { return Gated(item.second); }))
      Notify(key);
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
  if (const JobTruth* truth = world_.Find(key)) part = JobPart{truth->job, truth->status, truth->revision};
  Deliver(kJobs, [this, key, part = std::move(part), revision = world_.revision(Kind::kJob)]() mutable {
    Cached& cached = cache_[key];
    if (revision > cached.floor[0]) {
      // Another job with the same name starts without the cached state.
      if (!part || (cached.job && cached.job->job.uid != part->job.uid)) cached.order.reset();
      if (!part || (cached.job && cached.job->job.uid != part->job.uid)) cached.support.reset();
      cached.job = std::move(part);
    }
    seen_[0] = std::max(seen_[0], revision);
    Notify(key);
  });
}

void SimBackend::OnPod(const Key& key, const std::string& name) {
  if (!Alive()) return;
  std::optional<core::Pod> pod;
  if (const JobTruth* truth = world_.Find(key)) {
    if (auto it = truth->pods.find(name); it != truth->pods.end()) pod = it->second.pod;
  }
  Deliver(kPods, [this, key, name, pod = std::move(pod), revision = world_.revision(Kind::kPod)]() mutable {
    Cached& cached = cache_[key];
    bool frees = false;
    if (revision > cached.floor[1]) {
      frees = !pod || !pod->alive();
      if (pod)
        LearnPod(cached, *std::move(pod), false);
      else
        ForgetPod(cached, name);
    }
    seen_[1] = std::max(seen_[1], revision);
    Notify(key);
    if (frees) NotifyWaiting();
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
  capacity_.SetNode(std::move(facts));
  if (lost)
    not_ready_.insert(name);
  else
    not_ready_.erase(name);
}

// The world stamps pods with its own wall clock. A time in the future of this process's clock is replaced by
// the time at which the process first observed it.
void SimBackend::LearnPod(Cached& cached, core::Pod pod, bool live) {
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
  if (!pod.alive()) {
    if (!options_.keeps_reservations) capacity_.RemovePod(pod.uid);
  } else if (pod.bound()) {
    capacity_.SetPod(pod.uid, {{kPlace, 1}}, pod.node);
  } else if (pod.gated) {
    if (live)
      capacity_.Unreserve(pod.uid);
    else
      capacity_.SetGated(pod.uid);
  } else if (!options_.forgets_reservations) {
    capacity_.ExpectPod(pod.uid, ShapeWithout({}));
  }
  if (before == nullptr && it != cached.pods.end()) capacity_.RemovePod(it->second.uid);
  const std::string name = pod.name;
  cached.pods[name] = std::move(pod);
}

void SimBackend::ForgetPod(Cached& cached, const std::string& name) {
  auto it = cached.pods.find(name);
  if (it == cached.pods.end()) return;
  if (!options_.keeps_reservations) capacity_.RemovePod(it->second.uid);
  cached.pods.erase(it);
}

void SimBackend::ReadNow(const Key& key) {
  Cached& cached = cache_[key];
  const JobTruth* truth = world_.Find(key);
  if (!cached.job || truth == nullptr || truth->job.uid != cached.job->job.uid) cached.order.reset();
  cached.job.reset();
  cached.floor[0] = world_.revision(Kind::kJob);
  cached.floor[1] = world_.revision(Kind::kPod);
  cached.support_version = ++support_version_;
  cached.support.reset();
  std::vector<std::string> gone;
  for (const auto& [name, pod] : cached.pods)
    if (truth == nullptr || !truth->pods.contains(name)) gone.push_back(name);
  for (const std::string& name : gone) ForgetPod(cached, name);
  if (truth == nullptr) return;
  cached.job = JobPart{truth->job, truth->status, truth->revision};
  if (truth->support_complete) cached.support = truth->support;
  for (const auto& [name, p] : truth->pods) LearnPod(cached, p.pod, true);
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
  if (const auto* release = std::get_if<core::ReleaseGang>(&write.action);
      release != nullptr && !world_.nodes().empty() && !options_.forgets_reservations) {
    // Reserve the room before the request is sent, so that no other gang gets it.
    std::vector<std::string> uids;
    const Cached& cached = cache_[write.key];
    for (const core::PodRef& ref : release->pods) {
      // The room of a pod that is gone would never be released.
      auto it = cached.pods.find(ref.name);
      if (it == cached.pods.end() || it->second.uid != ref.uid)
        return done(Error{Code::kNotFound, "pod " + ref.name});
      uids.push_back(ref.uid);
    }
    // Such pods are released even without room.
    const bool pressed = options_.never_says_full || (cached.job && cached.job->job.autoscaler);
    const auto shape = cached.job ? ShapeOf(Shifted(cached.job->status, -clock_).ledger, scheduler_.now())
                                  : ShapeWithout({});
    if (!capacity_.Reserve(uids, shape) && !pressed) return done(Error{Code::kConflict, "no room is left"});
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
  if (const auto* prepare = std::get_if<core::PrepareGang>(&write.action);
      prepare != nullptr && result.ok()) {
    // A newer watch event wins: an object may have been deleted since.
    if (!cached.job || cached.job->job.uid != write.job_uid || version <= cached.support_version) return;
    cached.support_version = version;
    cached.support = *prepare;
    Notify(write.key);
  }
  if (const auto* release = std::get_if<core::ReleaseGang>(&write.action);
      release != nullptr && !result.ok() && result.error().code != Code::kAmbiguous) {
    // Each pod is patched separately: those released before the error keep their places.
    const JobTruth* truth = world_.Find(write.key);
    for (const core::PodRef& ref : release->pods) {
      if (truth != nullptr) {
        auto it = truth->pods.find(ref.name);
        if (it != truth->pods.end() && it->second.pod.uid == ref.uid && !it->second.pod.gated) continue;
      }
      capacity_.Unreserve(ref.uid);
    }
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
