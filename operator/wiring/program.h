// SPDX-License-Identifier: Apache-2.0

// A pod whose agent starts the user's command, as a program or as a trainer (api::RunsCommand): an init
// container with the operator's worker image copies the agent into a volume, and the agent becomes the first
// process of the user's container. The image of that container needs nothing. Pure functions.
#pragma once

#include "api/training_job.h"
#include "base/json.h"
#include "operator/wiring/template.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {

// The volume of the agent, where its sockets may be, too: writable, also with a read-only root file system.
inline constexpr const char* kAgentFolder = "/ringmaster";

// Adds the init container and the volume to `spec`, and the mount and the variables to `container`. `user`:
// what the template of the pod says, which is merged afterwards.
void AddAgent(const api::TrainingJob& job, int32_t rank, const Context& context, const Template& user,
              Json& spec, Json& container);

// Puts the agent in front of the command of the merged container; its arguments stay. Without a command
// (api::WorkersNeedCommand) the agent serves the launcher of MPI.
void WrapCommand(const api::TrainingJob& job, Json& container);

}  // namespace ringmaster::wiring
