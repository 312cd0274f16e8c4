// SPDX-License-Identifier: Apache-2.0

// Kubernetes' own gangs (scheduling.k8s.io): the versions of the API that the operator can use, and the
// object and the field of the pods of each. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/training_job.h"
#include "base/json.h"

namespace ringmaster::wiring {

inline constexpr const char* kNativeGroup = "scheduling.k8s.io";

struct NativeApi {
  const char* version;
  const char* kind;  // of the object that holds the gang
  const char* plural;
  // Whether `auto` uses it. In 1.35 and 1.36 the scheduler knows gangs only with a second feature gate, which
  // no API shows; without it, it places each pod alone. With it, the scheduler of 1.35 lets two gangs each
  // hold what the other lacks, for up to five minutes. e2e/schedulers shows both.
  bool automatic;
  bool at_once;  // its scheduler places a gang in one step, and keeps no nodes for a part of one
};

// The newest first. Kubernetes 1.37 has v1beta1 and v1alpha3, which are alike. In 1.36 the policy of a
// PodGroup is immutable. In 1.35 groups are parts of a Workload, which is immutable, and have no priority.
inline constexpr NativeApi kNativeApis[] = {
    {"v1beta1", "PodGroup", "podgroups", true, true},
    {"v1alpha3", "PodGroup", "podgroups", true, true},
    {"v1alpha2", "PodGroup", "podgroups", false, true},
    {"v1alpha1", "Workload", "workloads", false, false},
};

// Returns nullptr for a version that the operator cannot use.
const NativeApi* FindNativeApi(std::string_view version);

// Returns the spec of the object of a gang with at least `min` pods.
Json NativeGroupSpec(const NativeApi& api, const api::TrainingJob& job, int32_t min);

// Makes the pod with this spec a member of the gang that the object `group` holds.
void JoinNativeGroup(const NativeApi& api, const std::string& group, Json& pod_spec);

}  // namespace ringmaster::wiring
