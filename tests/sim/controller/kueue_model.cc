// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/controller/kueue_model.h"

namespace ringmaster::sim {
namespace {

constexpr double kAdmissions = 0.5;     // per second
constexpr double kReactivations = 0.1;  // per second

}  // namespace

bool KueueModel::Tick(core::Workload& w, bool has_queue, bool faulty, Duration elapsed) {
  if (w.finished || w.deleting) return false;
  const double spent = ToSeconds(elapsed);
  if (!w.active) {
    if (!w.evicted) return Evict(w, "Deactivated");
    if (w.reserved || (faulty && !rng_.Chance(kReactivations * spent))) return false;
    w.active = true;
    w.evicted = false;
    return true;
  }
  if (w.reserved) {
    if (w.evicted) return false;
    if (faulty && rng_.Chance(faults_.eviction * spent)) {
      if (rng_.Chance(0.2)) {
        w.active = false;
        return Evict(w, "Deactivated");
      }
      static constexpr const char* kReasons[] = {"Preempted", "PodsReadyTimeout", "ClusterQueueStopped"};
      return Evict(w, kReasons[rng_.Below(3)]);
    }
    if (w.admitted || !rng_.Chance(kAdmissions * spent)) return false;
    w.admitted = true;
    return true;
  }
  return has_queue && rng_.Chance(kAdmissions * spent) && Admit(w);
}

bool KueueModel::Admit(core::Workload& w) {
  w.grants.clear();
  for (const core::PodSet& set : w.pod_sets) {
    int32_t count = set.count;
    if (set.min > 0 && rng_.Chance(0.5))
      count = set.min + static_cast<int32_t>(rng_.Below(static_cast<uint64_t>(set.count - set.min) + 1));
    w.grants.push_back({set.name, count});
  }
  w.reserved = true;
  w.admitted = rng_.Chance(0.7);
  w.evicted = false;
  w.waits_for.clear();
  return true;
}

bool KueueModel::Evict(core::Workload& w, const char* reason) {
  w.evicted = true;
  w.eviction_reason = reason;
  w.eviction_message = "the model says so";
  return true;
}

}  // namespace ringmaster::sim
