// SPDX-License-Identifier: Apache-2.0

// KueueModel: Kueue in the simulated cluster, as jobs see it. It admits each Workload some time after it
// asks, sometimes with fewer pods and sometimes in two steps, and while there are faults it evicts and
// deactivates Workloads. An evicted one keeps its quota until it is cleared.
#pragma once

#include <string>

#include "base/rng.h"
#include "operator/core/kueue_workload.h"
#include "tests/sim/controller/faults.h"

namespace ringmaster::sim {

struct WorkloadTruth {
  core::Workload workload;
  std::string owner_uid;  // empty: orphaned
};

class KueueModel {
 public:
  KueueModel(uint64_t seed, const Faults& faults) : rng_(seed), faults_(faults) {}

  // Lets `elapsed` pass for the Workload. Returns true if it changed. `has_queue`: its LocalQueue exists.
  bool Tick(core::Workload& workload, bool has_queue, bool faulty, Duration elapsed);

 private:
  bool Admit(core::Workload& workload);
  bool Evict(core::Workload& workload, const char* reason);

  SplitMix64 rng_;
  const Faults faults_;
};

}  // namespace ringmaster::sim
