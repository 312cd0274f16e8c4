// SPDX-License-Identifier: Apache-2.0

// Exit codes of the agent, and its termination message.
#pragma once

#include <string>

namespace ringmaster::agent {

// In addition to the codes in the coordinator's Exit; 0: done, or left by plan.
inline constexpr int kExitBadConfiguration = 64;
inline constexpr int kExitInternal = 70;
// A program cannot be started; as of a shell whose command is not found.
inline constexpr int kExitCannotStart = 127;

// Writes the reason of the exit and the trainer's last lines to `path`, where Kubernetes (or `ringmaster
// run`) reads them; does nothing if it is empty. Failures are only logged.
void WriteTerminationLog(const std::string& path, const std::string& message, const std::string& tail);
// Adds rendezvous::kFinishedNote to what the user's program may have written there.
void WriteFinishedNote(const std::string& path);

}  // namespace ringmaster::agent
