// SPDX-License-Identifier: Apache-2.0

// Lists the children of a process. Thread-safe. Linux only.
#pragma once

#include <sys/types.h>

#include <vector>

namespace ringmaster {

// Returns the children of the process, those of all of its threads. Empty when it has none, or has ended. A
// child that is a zombie counts until its parent has collected it. The list is not atomic: a process that
// forks meanwhile may be missing.
std::vector<pid_t> ChildrenOf(pid_t pid);

// Returns the children of the calling process.
std::vector<pid_t> ChildrenOfThisProcess();

}  // namespace ringmaster
