// SPDX-License-Identifier: Apache-2.0

// What a worker may do: as little as Pod Security's level "restricted" allows, and with RDMA what pinning
// memory needs (the capability IPC_LOCK, which only root has in effect). Images of other frameworks choose
// their user and capabilities themselves. Pure functions.
#pragma once

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/template.h"

namespace ringmaster::wiring {

// Our images run as this user, and volumes are made writable for this group.
inline constexpr int kWorkerUser = 65532;

void SecureByDefault(const api::TrainingJob& job, Json& spec, Json& container);

// IPC_LOCK, whatever list of capabilities the template gave.
void AllowPinnedMemory(Json& container);

// The API server or the kubelet refuses some pairs (root and runAsNonRoot, privileged and no escalation).
// Where the template asks for one, our default of the other goes.
void DropContradictedDefaults(const Template& user, Json& spec, Json& container);

}  // namespace ringmaster::wiring
