#include "operator/sim/sim_backend.h"

#include <algorithm>

namespace ringmaster::sim {

using control::Key;
using control::Kind;
using control::Revision;

SimBackend::SimBackend(World& world, Scheduler& scheduler, const Faults& faults, uint64_t seed)
    : world_(world), scheduler_(scheduler), faults_(faults), rng_(seed) {
  world_.Observe({[this](const Key& key) { OnJob(key); },
                  [this](const Key& key, const std::string& name) { OnPod(key, name); },
                  [this](const Key& key) { Notify(key); }});
  Restart();
}

void SimBackend::Restart() {
  process_ += 1;
  subscribers_.clear();
  cache_.clear();
  for (const auto& [key, job] : world_.jobs()) ReadNow(key);
  for (const Kind kind : {Kind::kJob, Kind::kPod}) {
    seen_[static_cast<size_t>(kind)] = world_.revision(kind);
    last_delivery_[static_cast<size_t>(kind)] = scheduler_.now();
  }
}

std::optional<control::Snapshot> SimBackend::Observe(const Key& key) const {
  auto it = cache_.find(key);
  if (it == cache_.end() || !it->second.job) return std::nullopt;
  const JobPart& job = *it->second.job;
  control::Snapshot snapshot;
  snapshot.observed.job = job.job;
  snapshot.observed.status = job.status;
  snapshot.job_revision = job.revision;
  for (const auto& [name, pod] : it->second.pods) snapshot.observed.pods.push_back(pod);
  std::sort(snapshot.observed.pods.begin(), snapshot.observed.pods.end(),
            [](const core::Pod& a, const core::Pod& b) {
              return std::pair(a.attempt, a.rank) < std::pair(b.attempt, b.rank);
            });
  // The coordinator is in our own process.
  if (const JobTruth* truth = world_.Find(key); truth != nullptr && truth->job.uid == job.job.uid) {
    snapshot.observed.order = truth->gang.order;
    if (truth->job.native && truth->gang.order) snapshot.observed.report = truth->gang.report;
  }
  return snapshot;
}

Revision SimBackend::Seen(Kind kind) const { return seen_[static_cast<size_t>(kind)]; }

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

Duration SimBackend::Random(Duration most) {
  if (!world_.faulty()) most = std::min<Duration>(most, milliseconds(20));
  return Duration(static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(most.count()) + 1)));
}

// ---- the watch

void SimBackend::Deliver(Kind kind, std::function<void()> what) {
  const auto k = static_cast<size_t>(kind);
  // Changes of one kind never overtake each other.
  last_delivery_[k] = std::max(last_delivery_[k], scheduler_.now() + Random(faults_.watch_lag_max));
  scheduler_.At(last_delivery_[k],
                [this, k, process = process_, revision = world_.revision(kind), what = std::move(what)] {
                  if (process != process_) return;
                  what();
                  seen_[k] = std::max(seen_[k], revision);
                });
}

void SimBackend::OnJob(const Key& key) {
  std::optional<JobPart> part;
  if (const JobTruth* truth = world_.Find(key)) part = JobPart{truth->job, truth->status, truth->revision};
  Deliver(Kind::kJob, [this, key, part = std::move(part), revision = world_.revision(Kind::kJob)] {
    Cached& cached = cache_[key];
    if (revision > cached.floor[0]) cached.job = part;
    seen_[0] = std::max(seen_[0], revision);
    Notify(key);
  });
}

void SimBackend::OnPod(const Key& key, const std::string& name) {
  std::optional<core::Pod> pod;
  if (const JobTruth* truth = world_.Find(key)) {
    if (auto it = truth->pods.find(name); it != truth->pods.end()) pod = it->second.pod;
  }
  Deliver(Kind::kPod, [this, key, name, pod = std::move(pod), revision = world_.revision(Kind::kPod)] {
    Cached& cached = cache_[key];
    if (revision > cached.floor[1]) {
      if (pod)
        cached.pods[name] = *pod;
      else
        cached.pods.erase(name);
    }
    seen_[1] = std::max(seen_[1], revision);
    Notify(key);
  });
}

void SimBackend::ReadNow(const Key& key) {
  Cached& cached = cache_[key];
  cached.job.reset();
  cached.pods.clear();
  cached.floor[0] = world_.revision(Kind::kJob);
  cached.floor[1] = world_.revision(Kind::kPod);
  const JobTruth* truth = world_.Find(key);
  if (truth == nullptr) return;
  cached.job = JobPart{truth->job, truth->status, truth->revision};
  for (const auto& [name, p] : truth->pods) cached.pods[name] = p.pod;
}

// ---- requests

void SimBackend::Execute(control::Write write, std::function<void(Result<Revision>)> done) {
  if (std::holds_alternative<core::SetGang>(write.action)) {  // a call within the process
    done(world_.Apply(write));
    return;
  }
  const Duration there = Random(faults_.request_max);
  const Duration back = Random(faults_.request_max);
  if (Chance(faults_.lost_request)) {
    const Code code = rng_.Chance(0.5) ? Code::kUnavailable : Code::kAmbiguous;
    scheduler_.After(there + back, [done = std::move(done), code] { done(Error{code, "request lost"}); });
    return;
  }
  if (std::holds_alternative<core::SetStatus>(write.action) && Chance(faults_.conflict)) {
    scheduler_.After(there + back, [done = std::move(done)] { done(Error{Code::kConflict, "by bad luck"}); });
    return;
  }
  const bool lost_reply = Chance(faults_.lost_reply);
  scheduler_.After(there, [this, write = std::move(write), done = std::move(done), back, lost_reply] {
    Result<Revision> result = world_.Apply(write);
    if (lost_reply) result = Error{Code::kAmbiguous, "reply lost"};
    scheduler_.After(back, [done, result] { done(result); });
  });
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
