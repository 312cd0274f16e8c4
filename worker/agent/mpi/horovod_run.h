// SPDX-License-Identifier: Apache-2.0

// In a pod of framework horovod the name horovodrun leads to the agent's program, which starts the real one
// with a changed command: the wrapper (mpi_rank.h) before the user's program, and options for the hosts, the
// number of ranks and the network interface where the user gives none. horovodrun then starts the ranks with
// ssh, whose name leads to the agent's program as well (mpi_rsh.h), or with mpirun. In a job whose workers
// come and go it asks `ringmaster-agent hosts` for them once a second; so does a script by `ringmaster
// hosts`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ringmaster::agent {

inline constexpr std::string_view kHorovodRun = "horovodrun";

// What horovodrun uses unless its command names something else.
struct HorovodDefaults {
  std::string hosts;      // the file of hosts
  int32_t ranks = 0;      // slots of all hosts
  std::string interface;  // of the network between the pods; empty: horovodrun has to find it
  int32_t min_ranks = 0;  // of a job whose workers come and go; 0: they do not
  bool mpi = false;       // whether the job names the implementation of MPI
  std::string agent;
  // Horovod takes no other interface than that of 127.0.0.1 when all hosts are the launcher's own pod.
  std::vector<std::string> own_names = {};  // of this pod, as a host
  bool alone = false;                       // it is the only one in the file of hosts
  std::string loopback = {};                // the interface of 127.0.0.1
};

// Returns the arguments after the launcher's name. Errors: kInvalid when the command needs an implementation
// of MPI that the job does not name.
Result<std::vector<std::string>> HorovodArguments(const std::vector<std::string>& arguments,
                                                  const HorovodDefaults& defaults);

// Runs the real horovodrun in place of this process. `words`: as this process was called. Returns only an
// exit code of a failure.
int RunHorovod(std::vector<std::string> words);

// Prints "HOST:SLOTS" for each worker that is there now. Returns the exit code.
int RunHosts();

inline constexpr std::string_view kRingmaster = "ringmaster";
// The name ringmaster in such a pod: the commands hosts and rsh, and the real program for others. `words`: as
// this process was called.
int RunByName(const std::vector<std::string>& words);

}  // namespace ringmaster::agent
