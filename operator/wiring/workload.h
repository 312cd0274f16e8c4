// SPDX-License-Identifier: Apache-2.0

// The Workload by which a job asks Kueue for quota, and what an admission adds to the job's pods. Pure
// functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/core/kueue_workload.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

inline constexpr const char* kWorkloadVersion = "kueue.x-k8s.io/v1beta2";
inline constexpr const char* kQueueNameLabel = "kueue.x-k8s.io/queue-name";
inline constexpr const char* kWorkloadPriorityLabel = "kueue.x-k8s.io/priority-class";
// For how many seconds Kueue lets the job be admitted, before it deactivates the Workload.
inline constexpr const char* kMaximumTimeLabel = "kueue.x-k8s.io/max-exec-time-seconds";
// Holds a Workload, and with it the quota, until the pods are gone.
inline constexpr const char* kWorkloadFinalizer = "kueue.x-k8s.io/resource-in-use";
// Kueue removes this gate when it gives the pod the node selector of its place in the assigned topology.
inline constexpr const char* kTopologyGate = "kueue.x-k8s.io/topology";
// What the Workload was rendered from: a hash of WorkloadInputs and the templates.
inline constexpr const char* kRenderedAnnotation = "ringmaster.dev/workload-for";

struct WorkloadInputs {
  std::string queue;
  std::vector<core::PodSet> pod_sets;
  int32_t priority = 0;
  // The class that the priority comes from: group, kind and name; an empty name: none.
  std::string class_group;
  std::string class_kind;
  std::string class_name;
  int32_t maximum_seconds = 0;                     // of kMaximumTimeLabel; 0: none
  std::map<std::string, std::string> annotations;  // those of the job that IsPassedOn
  // Labels that nodes must have for any pod, in addition to those that the template selects. RenderedText
  // does not depend on them.
  std::map<std::string, std::string> node_labels;
  // As in core::MakeWorkload.
  bool slice = false;
  std::string replaces;
  std::string chain;
  int32_t surplus = 0;
};

// Kueue's annotations of a job, and of the slices of a job that grows by them.
inline constexpr const char* kElasticAnnotation = "kueue.x-k8s.io/elastic-job";  // "true"
inline constexpr const char* kReplacesAnnotation =
    "kueue.x-k8s.io/workload-slice-replacement-for";  // namespace/name
inline constexpr const char* kChainAnnotation = "kueue.x-k8s.io/workload-slice-name";

// Of a Workload of a job's workers above its minimum: its number.
inline constexpr const char* kSurplusAnnotation = "ringmaster.dev/surplus";
// Returns the value of kSurplusAnnotation. 0: the Workload is no surplus.
int32_t SurplusNumber(std::string_view annotation);

// Whether the Workload has this annotation of its job: the gates of its admission, and the parameters of its
// ProvisioningRequests.
bool IsPassedOn(std::string_view annotation);
// Returns the value of kMaximumTimeLabel. nullopt: Kueue knows no such value.
std::optional<int32_t> MaximumSeconds(std::string_view label);

// MultiKueue: the manager of a job that Kueue runs on another cluster, and the label or annotation there,
// which has the name of the ready-made Workload.
inline constexpr const char* kMultiKueue = "kueue.x-k8s.io/multikueue";
inline constexpr const char* kPrebuiltWorkload = "kueue.x-k8s.io/prebuilt-workload-name";

// Returns at most 54 characters: Kueue uses the name as a label value. Another job of this name has another.
// `part`: the name of the slice that it replaces, or SurplusPart of a surplus; empty: neither.
std::string WorkloadName(const std::string& job, const std::string& job_uid, const std::string& part = {});
std::string SurplusPart(int32_t number);

// Returns the Workload. Its templates have only what Kueue counts and compares with flavours: a newer
// operator renders the same.
Json WorkloadOf(const api::TrainingJob& job, const std::string& job_uid, const WorkloadInputs& inputs);
// Returns the value of kRenderedAnnotation. It does not depend on the queue and the counts.
std::string RenderedText(const Json& workload);

// Returns the metadata by which the job owns this ready-made Workload: labels, finalizers and owners.
Json AdoptedMetadata(const api::TrainingJob& job, const std::string& job_uid, const Json& workload);

// Adds what the admission says to a pod. One with Kueue's topology gate also gets an annotation that asks for
// a topology, without which Kueue does not look at the pod.
void Admit(const Admission& admission, Json& pod);

}  // namespace ringmaster::wiring
