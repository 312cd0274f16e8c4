// SPDX-License-Identifier: Apache-2.0

// The termination message of the agent.
#pragma once

#include <string>

namespace ringmaster::agent {

// Writes the reason of the exit and the trainer's last lines to `path`, where Kubernetes (or `ringmaster
// run`) reads them; does nothing if it is empty. Failures are only logged.
void WriteTerminationLog(const std::string& path, const std::string& message, const std::string& tail);
// Adds rendezvous::kFinishedNote to what the user's program may have written there.
void WriteFinishedNote(const std::string& path);

}  // namespace ringmaster::agent
