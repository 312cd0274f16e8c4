// SPDX-License-Identifier: Apache-2.0

// The part of World below the API server: the scheduler, the kubelets, and nodes that are lost and return.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/controller/gang_model.h"
#include "tests/sim/controller/world.h"

namespace ringmaster::sim {

using control::Key;

namespace {

constexpr Duration kStartMax = milliseconds(1500);  // bound -> running
constexpr Duration kNodeAway = seconds(40);
constexpr Duration kNodeReported = seconds(12);  // the longest delay until a lost node is reported
constexpr Duration kNodeStarts = seconds(10);  // the longest time until a node that was switched off is back
constexpr Duration kStartRetry = seconds(1);
constexpr Duration kCordoned = seconds(80);       // the longest time
constexpr Duration kSchedulerAway = seconds(40);  // the longest outage of the scheduler
constexpr int32_t kUnknownExitCode = 255;         // of a container that its runtime lost
constexpr Duration kPeersNotice = seconds(6);  // the longest delay until workers notice that a peer is gone

}  // namespace

PodTruth* World::FindPod(const Key& key, const std::string& uid) {
  auto it = jobs_.find(key);
  if (it == jobs_.end()) return nullptr;
  for (auto* pods : {&it->second.pods, &it->second.strays})
    for (auto& [name, pod] : *pods)
      if (pod.pod.uid == uid) return &pod;
  return nullptr;
}

bool World::Unreachable(const PodTruth& pod) const {
  auto it = nodes_.find(pod.pod.node);
  return it != nodes_.end() && it->second.lost_since.has_value();
}

// ---- scheduler

void World::Bind(const Key& key, PodTruth& pod, const std::string& node) {
  pod.pod.node = node;
  pod.pod.placed = scheduler_.now();
  pod.pod.waiting_reason.clear();
  pod.pod.awaits_scheduler.clear();
  scheduler_.After(Random(kStartMax), [this, key, uid = pod.pod.uid] { StartPod(key, uid); });
}

namespace {

using FreePlaces = std::map<std::string, int32_t>;  // by node

struct WaitingPod {
  const Key* key;
  JobTruth* job;
  PodTruth* pod;
};

// Returns the pods without a node and without a gate, in creation order.
std::vector<WaitingPod> WaitingPods(std::map<Key, JobTruth>& jobs) {
  std::vector<WaitingPod> waiting;
  for (auto& [key, job] : jobs) {
    for (auto& [name, pod] : job.pods)
      if (pod.pod.phase == core::PodPhase::kPending && !pod.pod.bound() && !pod.pod.gated)
        waiting.push_back({&key, &job, &pod});
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const WaitingPod& a, const WaitingPod& b) { return a.pod->number < b.pod->number; });
  return waiting;
}

FreePlaces FindFreePlaces(const std::map<Key, JobTruth>& jobs,
                          const std::map<std::string, NodeTruth>& nodes) {
  FreePlaces free;
  for (const auto& [name, node] : nodes)
    if (!node.reported_since && !node.cordoned) free[name] = node.pod_capacity;
  for (const auto& [key, job] : jobs) {
    for (const auto* pods : {&job.pods, &job.strays})
      for (const auto& [name, pod] : *pods)
        if (pod.pod.alive() && pod.pod.bound())
          if (auto it = free.find(pod.pod.node); it != free.end()) it->second -= 1;
  }
  return free;
}

// Removes the pods of gangs that do not reach their minimum with the free places.
void DropIncompleteGangs(const FreePlaces& free, std::vector<WaitingPod>& waiting) {
  int32_t room = 0;
  for (const auto& [name, places] : free) room += std::max(places, 0);
  std::erase_if(waiting, [&](const WaitingPod& w) {
    int32_t bound = 0;
    int32_t unbound = 0;
    for (const auto& [name, pod] : w.job->pods) {
      bound += pod.pod.bound() ? 1 : 0;
      unbound += pod.pod.bound() ? 0 : 1;
    }
    const int32_t min = w.job->support ? w.job->support->min : 1;
    return bound + std::min(unbound, room) < min;
  });
}

// Takes a place for the pod and returns its node: of its domain, not an excluded one, and an avoided one only
// without an alternative. Returns nullptr when there is none.
const std::string* TakePlace(const PodTruth& pod, const std::map<std::string, NodeTruth>& nodes,
                             FreePlaces& free) {
  const auto named = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const bool anywhere : {false, true}) {
    for (auto& [name, places] : free) {
      if (places <= 0 || named(pod.excluded_nodes, name)) continue;
      if (!anywhere && named(pod.avoided_nodes, name)) continue;
      if (!pod.domain.empty() && nodes.at(name).domain != pod.domain) continue;
      places -= 1;
      return &name;
    }
  }
  return nullptr;
}

}  // namespace

// Schedules each pod alone, as the default scheduler does, or gangs as a whole with a gang scheduler.
void World::Schedule() {
  if (faulty() && outages_.Chance(options_.faults.scheduler_away * ToSeconds(GangModel::kTick)))
    scheduler_back_ = scheduler_.now() + milliseconds(outages_.Below(ToMs(kSchedulerAway)));
  if (scheduler_.now() < scheduler_back_) return;
  std::vector<WaitingPod> waiting = WaitingPods(jobs_);
  if (waiting.empty()) return;
  FreePlaces free = FindFreePlaces(jobs_, nodes_);
  if (options_.provider == core::GangProvider::kScheduler) DropIncompleteGangs(free, waiting);
  for (const WaitingPod& w : waiting) {
    if (const std::string* node = TakePlace(*w.pod, nodes_, free)) {
      Bind(*w.key, *w.pod, *node);
      PodChanged(*w.key, w.pod->pod.name);
    } else if (w.pod->pod.waiting_reason.empty()) {
      w.pod->pod.awaits_scheduler.clear();
      w.pod->pod.waiting_reason = "Unschedulable";
      w.pod->pod.waiting_message = "0 nodes are available";
      PodChanged(*w.key, w.pod->pod.name);
    }
  }
}

// ---- kubelets

void World::StartPod(const Key& key, const std::string& uid) {
  PodTruth* p = FindPod(key, uid);
  if (p == nullptr || p->pod.phase != core::PodPhase::kPending || p->pod.deleting()) return;
  const JobTruth& job = jobs_.at(key);
  const char* waits = nullptr;
  if (options_.models) {
    if (p->image_from && scheduler_.now() < *p->image_from) waits = "ImagePullBackOff";
    if (!job.support || !job.support_complete || job.support->attempt != p->pod.attempt)
      waits = "CreateContainerConfigError";
  }
  if (waits != nullptr || Unreachable(*p)) {
    scheduler_.After(kStartRetry, [this, key, uid] { StartPod(key, uid); });
    if (waits == nullptr || p->pod.waiting_reason == waits) return;
    p->pod.waiting_reason = waits;
    PodChanged(key, p->pod.name);
    return;
  }
  p->pod.waiting_reason.clear();
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

void World::EndPod(const Key& key, const std::string& uid, int32_t exit_code, const std::string& message,
                   EndedBy by) {
  PodTruth* p = FindPod(key, uid);
  if (p == nullptr || !p->pod.alive()) return;
  p->pod.phase = exit_code == 0 ? core::PodPhase::kSucceeded : core::PodPhase::kFailed;
  p->pod.exit_code = exit_code;
  p->pod.message = message;
  if (by == EndedBy::kEviction) p->pod.conditions.push_back("DisruptionTarget");
  p->pod.lost = by == EndedBy::kNode;
  p->pod.ended = scheduler_.now();
  const std::string name = p->pod.name;
  if (p->pod.deleting() && !p->pod.tracked)
    RemovePod(key, name);
  else
    PodChanged(key, name);
}

void World::EndAgent(const Key& key, const std::string& uid, bool finished) {
  PodTruth* p = FindPod(key, uid);
  if (p != nullptr && p->pod.alive()) p->pod.finished = finished;
  EndPod(key, uid, 0, "");
}

// ---- faults

void World::Tick() {
  if (!faulty() && !calmed_) Calm();
  if (faulty()) BreakNodes();
  if (faulty()) SilenceNodes();
  TickKueue();
  Schedule();
  std::vector<Key> keys;
  for (const auto& [key, job] : jobs_) keys.push_back(key);
  for (const Key& key : keys) {
    if (auto it = jobs_.find(key); it != jobs_.end() && faulty()) BreakPods(key, it->second);
    if (auto it = jobs_.find(key); it != jobs_.end() && !it->second.gone) CollectEnded(key, it->second);
    auto it = jobs_.find(key);  // the end of a deleted job's last pod removes the job
    if (it == jobs_.end() || it->second.gone) continue;
    JobTruth& job = it->second;
    const bool incomplete = !job.pods.empty() && !(job.support && job.support_complete);
    if (!incomplete) job.support_missing_since.reset();
    if (incomplete && !job.support_missing_since) job.support_missing_since = scheduler_.now();
    GangModel::Tick(*this, key);
  }
  scheduler_.After(GangModel::kTick, [this] { Tick(); });
}

void World::Calm() {
  calmed_ = true;
  scheduler_back_ = Time{};
  quota_.reset();
  foreign_.clear();
  std::vector<std::string> away;
  for (const auto& [name, node] : nodes_)
    if (node.lost_since) away.push_back(name);
  for (const std::string& name : away) ReturnNode(name);
}

void World::BreakPods(const Key& key, JobTruth& job) {
  const double per_tick = ToSeconds(GangModel::kTick);
  const Faults& f = options_.faults;
  std::vector<std::pair<std::string, int32_t>> crashed;
  for (auto& [name, p] : job.pods) {
    if (p.pod.phase != core::PodPhase::kRunning || p.stuck || Unreachable(p)) continue;
    if (rng_.Chance(f.pod_crash * per_tick)) {
      static constexpr int32_t kCodes[] = {1, 137, 139, 75, 3, 64};
      // Exit code 64 (bad configuration) is rare because it ends the run.
      crashed.emplace_back(p.pod.uid, kCodes[rng_.Below(rng_.Chance(0.02) ? 6 : 5)]);
    } else if (rng_.Chance(f.pod_silent * per_tick)) {
      p.silent = true;
    }
  }
  for (const auto& [uid, code] : crashed)
    EndPod(key, uid, code, "crashed",
           code == 137 && rng_.Chance(0.3) ? EndedBy::kEviction : EndedBy::kItself);
}

// No fault: pods that have ended may be deleted at any time.
void World::CollectEnded(const Key& key, JobTruth& job) {
  std::vector<std::string> collected;
  for (const auto& [name, p] : job.pods)
    if (!p.pod.alive() && !p.pod.deleting() &&
        rng_.Chance(options_.faults.collected * ToSeconds(GangModel::kTick)))
      collected.push_back(name);
  for (const std::string& name : collected) RequestDeletion(key, job.pods.at(name));
}

void World::Cordon(const std::string& domain) {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_)
    if (node.domain == domain && !node.cordoned) names.push_back(name);
  const auto set = [this](const std::string& name, bool cordoned) {
    nodes_.at(name).cordoned = cordoned;
    NodeChanged(name);
  };
  const auto least = static_cast<uint64_t>(ToMs(kCordoned) / 2);
  for (const std::string& name : names) {
    set(name, true);
    scheduler_.After(milliseconds(least + cordons_.Below(least)), [set, name] { set(name, false); });
  }
}

void World::BreakNodes() {
  const double per_tick = ToSeconds(GangModel::kTick);
  for (auto& [name, node] : nodes_) {
    if (node.lost_since) continue;
    const bool restarts = rng_.Chance(options_.faults.node_restart * per_tick);
    if (!restarts && !rng_.Chance(options_.faults.node_lost * per_tick)) continue;
    const Time now = scheduler_.now();
    node.lost_since = now;
    if (restarts) {
      scheduler_.After(Random(kNodeStarts), [this, again = name, now] { RestartNode(again, now); });
    } else {
      scheduler_.After(Random(kNodeReported), [this, lost = name, now] { ReportNodeLost(lost, now); });
      scheduler_.After(Random(kNodeAway), [this, away = name] { ReturnNode(away); });
    }
    for (const auto& [key, job] : jobs_)
      if (!job.job.in_place) FailPeers(key, job, name);
  }
}

// Ends some of the workers that have a peer on the lost node with an error: their framework does not survive
// the loss.
void World::FailPeers(const Key& key, const JobTruth& job, const std::string& node) {
  const auto runs_there = [&](const auto& item) {
    return item.second.pod.node == node && item.second.pod.phase == core::PodPhase::kRunning;
  };
  if (std::none_of(job.pods.begin(), job.pods.end(), runs_there)) return;
  for (const auto& [name, p] : job.pods) {
    if (p.pod.node == node || p.stuck || !rng_.Chance(0.5)) continue;
    scheduler_.After(Random(kPeersNotice), [this, key, uid = p.pod.uid] {
      if (const PodTruth* peer = FindPod(key, uid); peer != nullptr && !Unreachable(*peer))
        EndPod(key, uid, 1, "lost a peer");
    });
  }
}

// The API server does not hear some nodes for a while, as when its load balancer forgets them. Their pods run
// on, and their agents reach the coordinator.
void World::SilenceNodes() {
  for (auto& [name, node] : nodes_) {
    if (node.lost_since || node.reported_since) continue;
    if (!unheard_.Chance(options_.faults.node_lost * ToSeconds(GangModel::kTick))) continue;
    ReportNodeLost(name, std::nullopt);
    scheduler_.After(milliseconds(unheard_.Below(static_cast<uint64_t>(ToMs(kNodeAway)))),
                     [this, again = name] { HearNode(again); });
  }
}

// One that was lost meanwhile is heard when it has returned.
void World::HearNode(const std::string& name) {
  NodeTruth& node = nodes_.at(name);
  if (node.lost_since) {
    scheduler_.After(kNodeReported, [this, name] { HearNode(name); });
    return;
  }
  if (!std::exchange(node.reported_since, std::nullopt)) return;
  ForEachPod([&](const Key& key, PodTruth& p) {
    if (p.pod.node != name || !p.pod.unreachable_since) return;
    p.pod.unreachable_since.reset();
    PodChanged(key, p.pod.name);
  });
  NodeChanged(name);
}

// Reports a node that was lost at that time, or none: that is not heard. The pods of a lost one were cut off
// before.
void World::ReportNodeLost(const std::string& name, std::optional<Time> lost_since) {
  NodeTruth& node = nodes_.at(name);
  if (node.lost_since != lost_since) return;  // it returned before the loss was reported
  node.reported_since = scheduler_.now();
  ForEachPod([&](const Key& key, PodTruth& p) {
    if (p.pod.node != name || !p.pod.alive()) return;
    p.pod.unreachable_since = scheduler_.now();
    PodChanged(key, p.pod.name);
  });
  NodeChanged(name);
}

// Nothing that ran on the node runs any more.
void World::RestartNode(const std::string& name, Time lost_since) {
  NodeTruth& node = nodes_.at(name);
  if (node.lost_since != lost_since) return;
  node.lost_since.reset();
  node.restarted = scheduler_.now();
  NodeChanged(name);
  std::vector<std::pair<Key, std::string>> ending;
  ForEachPod([&](const Key& key, const PodTruth& p) {
    if (p.pod.node == name && p.pod.phase == core::PodPhase::kRunning && !p.stuck)
      ending.emplace_back(key, p.pod.uid);
  });
  for (const auto& [key, uid] : ending) EndPod(key, uid, kUnknownExitCode, "", EndedBy::kNode);
}

void World::ReturnNode(const std::string& name) {
  NodeTruth& node = nodes_.at(name);
  if (!node.lost_since) return;
  node.lost_since.reset();
  HearNode(name);
  std::vector<std::pair<Key, std::string>> ending;
  ForEachPod([&](const Key& key, const PodTruth& p) {
    if (p.pod.node == name && p.pod.deleting() && !p.stuck) ending.emplace_back(key, p.pod.uid);
  });
  for (const auto& [key, uid] : ending) EndPod(key, uid, 137, "");
}

}  // namespace ringmaster::sim
