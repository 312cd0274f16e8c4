// SPDX-License-Identifier: Apache-2.0

// SimBackend: who makes room for the head of the queue.
#include <map>
#include <optional>
#include <utility>

#include "operator/core/decide/decide.h"
#include "tests/sim/controller/sim_backend.h"

namespace ringmaster::sim {

using control::Key;

namespace {

constexpr Duration kPlanPause = milliseconds(200);

}  // namespace

void SimBackend::PlanSoon() {
  if (std::exchange(plan_due_, true)) return;
  scheduler_.After(kPlanPause, [this, process = process_] {
    if (process == process_) PlanPreemptions();
  });
}

std::optional<core::RoomHolder> SimBackend::HolderOf(const Key& key) const {
  const auto known = cache_.find(key);
  if (known == cache_.end() || !known->second.job) return std::nullopt;
  const Cached& cached = known->second;
  core::Job job = cached.job->job;
  job.allowed = core::AllowedWorkers(cached.job->status.ledger);
  std::vector<core::Pod> pods;
  for (const auto& [name, pod] : cached.pods)
    if (cached.owners.at(pod.uid) == job.uid) pods.push_back(pod);
  core::RoomHolder holder =
      core::HolderOf(key.ToString(), key.namespace_ + "/", job, cached.job->status.ledger, pods);
  holder.priority = PriorityOf(key);
  holder.preemptible = !job.autoscaler && !HasQueue(cached) && world_.provider() == core::GangProvider::kGate;
  return holder;
}

void SimBackend::PlanPreemptions() {
  plan_due_ = false;
  if (world_.nodes().empty()) return;
  const auto all = [this] {
    std::vector<std::string> names;
    for (const auto& [key, cached] : cache_) names.push_back(key.ToString());
    return names;
  };
  std::map<std::string, std::optional<core::RoomHolder>> read;
  for (const std::string& name : planner_.JobsToRead(all)) read.emplace(name, HolderOf(Key::Parse(name)));
  for (const std::string& name : planner_.Plan(std::move(read))) Notify(Key::Parse(name));
}

}  // namespace ringmaster::sim
