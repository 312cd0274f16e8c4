// SPDX-License-Identifier: Apache-2.0

// The collections that the backend watches and writes.
#pragma once

#include "operator/kube/resource.h"

namespace ringmaster::kube {

inline const Resource kJobs{"ringmaster.dev", "v1alpha1", "trainingjobs"};
inline const Resource kPods{"", "v1", "pods"};
inline const Resource kNodes{"", "v1", "nodes"};
inline const Resource kNamespaces{"", "v1", "namespaces"};
inline const Resource kPriorityClasses{"scheduling.k8s.io", "v1", "priorityclasses"};
inline const Resource kServices{"", "v1", "services"};
inline const Resource kConfigMaps{"", "v1", "configmaps"};
inline const Resource kLeases{"coordination.k8s.io", "v1", "leases"};
inline const Resource kVolcanoQueues{"scheduling.volcano.sh", "v1beta1", "queues"};
// Dynamic resource allocation.
inline const Resource kDeviceClasses{"resource.k8s.io", "v1", "deviceclasses"};
inline const Resource kResourceSlices{"resource.k8s.io", "v1", "resourceslices"};
inline const Resource kResourceClaims{"resource.k8s.io", "v1", "resourceclaims"};
inline const Resource kClaimTemplates{"resource.k8s.io", "v1", "resourceclaimtemplates"};
// Kueue's.
inline const Resource kWorkloads{"kueue.x-k8s.io", "v1beta2", "workloads"};
inline const Resource kLocalQueues{"kueue.x-k8s.io", "v1beta2", "localqueues"};
inline const Resource kFlavors{"kueue.x-k8s.io", "v1beta2", "resourceflavors"};
inline const Resource kWorkloadPriorityClasses{"kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses"};

// Holds a worker pod until the operator has accounted its end, as batch.kubernetes.io/job-tracking does.
inline constexpr const char* kTrackingFinalizer = "ringmaster.dev/job-tracking";

}  // namespace ringmaster::kube
