// SPDX-License-Identifier: Apache-2.0

// What the start of every child of an agent has in common, from fork to the outcome of exec. The functions
// that run in the child are async-signal-safe.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ringmaster::agent {

// Returns `texts` as exec takes them: pointers, then null. Valid while `texts` is unchanged.
std::vector<char*> PointersForExec(std::vector<std::string>& texts);

// In the child: makes it end with the agent, makes it the leader of a process group, and resets the priority
// and the signals that an agent has set. `agent`: the pid of the parent. Ends the child if the agent is gone.
void BecomeChildOf(pid_t agent);

// In the child, right after exec or what prepares it has failed: writes errno to the pipe `fd` and ends.
[[noreturn]] void ExitWithExecFailure(int fd);

// In the agent: returns the errno of a failed exec; 0 when exec succeeded, which closes the pipe.
int ReadExecFailure(int fd);

}  // namespace ringmaster::agent
