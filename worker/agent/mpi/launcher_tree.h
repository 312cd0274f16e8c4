// SPDX-License-Identifier: Apache-2.0

// Looks at the processes that a launcher of MPI or Horovod has started in its pod. Main thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace ringmaster::agent {

// Whether a process below `launcher` is `ringmaster-agent rsh` of a host that is not this one: commands of
// the launcher run in other pods.
bool ReachesOtherPods(pid_t launcher, const std::function<bool(const std::string& host)>& is_this_pod);

struct UnseenRank {
  pid_t pid = -1;  // -1: there is none
  std::string command;
};
// Finds a rank below `launcher` that does not run under the agent's wrapper (mpi_rank.h): it has the
// variables of a rank, and its launcher does not use the agents, so that all ranks run in this pod.
UnseenRank FindUnseenRank(pid_t launcher);

}  // namespace ringmaster::agent
