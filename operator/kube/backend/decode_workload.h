// SPDX-License-Identifier: Apache-2.0

// Decodes Kueue's objects into records. Pure.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "operator/core/kueue_workload.h"
#include "operator/core/model.h"
#include "operator/kube/watch/meta.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::kube {

// A Workload of a job.
struct WorkloadRecord {
  std::string job;           // namespace/name
  std::string owner_uid;     // of the job; empty: it was orphaned, or is offered to the job
  bool labelled = false;     // it has the job's label, so a list by that label includes it
  std::string rendered_for;  // wiring::kRenderedAnnotation
  core::Workload workload;   // `outdated` and `missing_flavor` depend on other objects
  std::string cluster_queue;
  struct Set {
    std::vector<std::string> flavors;  // sorted, each once
    wiring::Admission updates;         // of admission checks
    bool has_topology = false;         // Kueue gives each pod its node selector
  };
  std::map<std::string, Set> admitted;  // by pod set
};

struct FlavorRecord {
  std::string name;
  std::map<std::string, std::string> node_labels;
  std::vector<Json> tolerations;
  bool operator==(const FlavorRecord&) const = default;
};

struct LocalQueueRecord {
  std::string namespace_;
};

// Returns null for a Workload of another owner than a TrainingJob. One without an owner is the job's that its
// label names.
std::shared_ptr<const WorkloadRecord> DecodeWorkload(const Json& object, const Meta& meta);
std::shared_ptr<const FlavorRecord> DecodeFlavor(const Json& object, const Meta& meta);
// Returns null for a queue that is not the default one of its namespace.
std::shared_ptr<const LocalQueueRecord> DecodeLocalQueue(const Meta& meta);

// The head of a LocalQueue, from Kueue's visibility API.
struct QueueHead {
  std::map<std::string, int32_t> positions;  // by Workload, from 1
  bool whole = true;                         // nothing waits behind them
  // Returns core::Workload::position.
  int32_t PositionOf(const std::string& workload) const;
};
QueueHead DecodeQueueHead(const Json& pending_workloads_summary);

// Returns the status patch for the change to `object`, a Workload as the API server has it. `now`: the API's
// text.
Json StatusPatch(const Json& object, const core::SetWorkloadStatus& change, const std::string& now);

}  // namespace ringmaster::kube
