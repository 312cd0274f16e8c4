// SPDX-License-Identifier: Apache-2.0

// The network setups of spec.network:
//   shared device plugin   rdma.resource                      the count is a permit, all devices appear
//   SR-IOV with Multus     rdma.resource + networks           one attachment per virtual function
//   host device            rdma.resource + networks           as SR-IOV, with whole devices
//   host network           hostNetwork (+ rdma.resource)      ports from the job's range
//   DRA                    rdma.claimTemplate                 one claim per device
// The user's variables always win, including those of envFrom: the operator's are the first source of
// envFrom. Pure functions.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

inline constexpr const char* kNetworksAnnotation = "k8s.v1.cni.cncf.io/networks";

// Adds attachments, claims, host network and ports. resources.h requests the devices.
void AddNetworkDefaults(const api::TrainingJob& job, int32_t rank, const Context& context, Json& metadata,
                        Json& spec, Json& container);

// Adds the ConfigMap of network variables to envFrom, before the template's sources.
void AddNetworkVariables(const api::TrainingJob& job, Json& container);

// Returns the NCCL_* and UCX_* variables of the ConfigMap NetworkConfigName(job). Empty: there is no such
// ConfigMap.
Json NetworkVariables(const api::TrainingJob& job);

// Returns the ConfigMap; null when there are no variables.
Json NetworkConfigOf(const api::TrainingJob& job, const std::string& job_uid);

// Returns the ports of each pod on the host network: kHostPortsPerRank for each program that its agents keep.
int32_t HostPortsPerPod(const api::Spec& spec);

}  // namespace ringmaster::wiring
