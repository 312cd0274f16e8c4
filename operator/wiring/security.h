// SPDX-License-Identifier: Apache-2.0

// The security context of a worker: the Pod Security level "restricted", and with RDMA the capability
// IPC_LOCK for pinned memory, which only takes effect for root. Images of other frameworks choose their own
// user and capabilities. Pure functions.
#pragma once

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/template.h"

namespace ringmaster::wiring {

// Ringmaster's images run as this user, and volumes are writable for this group.
inline constexpr int kWorkerUser = 65532;

void SecureByDefault(const api::TrainingJob& job, Json& spec, Json& container);

// Adds IPC_LOCK to the container's capabilities.
void AllowPinnedMemory(Json& container);

// The API server or the kubelet refuses some combinations (root with runAsNonRoot, privileged without
// escalation). Drops the default that conflicts with a setting of the template.
void DropContradictedDefaults(const Template& user, Json& spec, Json& container);

}  // namespace ringmaster::wiring
