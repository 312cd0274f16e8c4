// SPDX-License-Identifier: Apache-2.0

// The network set-ups of spec.network, one shape each:
//   shared device plugin   rdma.resource                      the count is a ticket, all devices appear
//   SR-IOV with Multus     rdma.resource + networks           one attachment per virtual function
//   host device            rdma.resource + networks           the same shape, whole devices
//   host network           hostNetwork (+ rdma.resource)      ports from the job's range
//   DRA                    rdma.claimTemplate                 a claim each
// The user's own variables always win, those of envFrom too: ours come as the first source of envFrom.
// Pure functions.
#pragma once

#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

inline constexpr const char* kNetworksAnnotation = "k8s.v1.cni.cncf.io/networks";

// Attachments, claims, host network and ports. resources.h asks for the devices.
void AddNetworkDefaults(const api::TrainingJob& job, int32_t rank, const Context& context, Json& metadata,
                        Json& spec, Json& container);

// The source of variables, in front of the template's own.
void AddNetworkVariables(const api::TrainingJob& job, Json& container);

// NCCL_* and UCX_* as NetworkConfigName(job) holds them. Empty: no such ConfigMap.
Json NetworkVariables(const api::TrainingJob& job);

// The ConfigMap; null when there are no variables.
Json NetworkConfigOf(const api::TrainingJob& job, const std::string& job_uid);

}  // namespace ringmaster::wiring
