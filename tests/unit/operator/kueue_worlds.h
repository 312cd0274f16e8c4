// SPDX-License-Identifier: Apache-2.0

// Jobs in a queue of Kueue and their Workloads, for tests of the decisions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "operator/core/decide/decide_kueue.h"
#include "tests/unit/operator/worlds.h"

namespace ringmaster::core {

using Change = SetWorkloadStatus::Change;

inline Workload Waiting(const Observed& o) {
  Workload w;
  w.name = "job-abcde";
  w.uid = "uid-workload";
  w.revision = 7;
  w.queue = "queue";
  w.pod_sets = PodSetsOf(o.job);
  w.held = true;
  w.waits_for = "couldn't assign flavors: insufficient quota for nvidia.com/gpu, 2 more needed";
  return w;
}

inline Workload Admitted(const Observed& o, int32_t workers) {
  Workload w = Waiting(o);
  w.waits_for.clear();
  w.reserved = w.admitted = true;
  w.grants = {{kWorkerSet, workers}};
  w.pods_ready = PodsReady::kStarted;
  return w;
}

// A job in a queue, with this Workload.
inline void Enqueue(Observed& o, std::vector<Workload> workloads = {}) {
  o.quota.emplace();
  o.quota->api = Quota::Api::kRead;
  o.quota->queue = "queue";
  o.quota->workloads = std::move(workloads);
  LimitToQuota(o);
}

inline Observed NewQueued(int32_t target = 2) {
  Observed o = NewWorld(target);
  o.status.ledger.attempt = 1;  // as the API server creates it
  Enqueue(o);
  return o;
}

inline const Condition& Of(const Decision& decision, ConditionType type) {
  return StatusOf(decision)->status.display.Of(type);
}

}  // namespace ringmaster::core
