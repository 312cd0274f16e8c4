// SPDX-License-Identifier: Apache-2.0

// How an agent ends: its exit codes and its last words.
#pragma once

#include <string>

namespace ringmaster::agent {

// Besides those that the coordinator orders; 0: done, or left by plan.
inline constexpr int kExitBadConfiguration = 64;
inline constexpr int kExitInternal = 70;

// Leaves why, and the trainer's last lines, where Kubernetes (or `ringmaster run`) looks for them. A failure
// is logged; an empty path means that nobody looks.
void WriteTerminationLog(const std::string& path, const std::string& message, const std::string& tail);

}  // namespace ringmaster::agent
