// SPDX-License-Identifier: Apache-2.0

// `ringmaster-agent rank PROGRAM ARGS...` runs one rank of MPI and reports to the pod's program (mpi_pod.h)
// how it ends. The daemons of MPI start it in place of the rank. A wrapper is exact where looking at the
// processes of the pod is not: it sees a rank that lives for a millisecond, and its exit code, which only the
// parent learns.
//
// The rank gets RINGMASTER_RANK and RINGMASTER_WORLD_SIZE, and the wrapper's descriptors, except for standard
// error, whose last line names the reason of a failure. It leads its own process group: every signal to the
// wrapper reaches it once.
#pragma once

#include <string>
#include <vector>

namespace ringmaster::agent {

// Returns the exit code of the rank, or ends this process with the signal that ended the rank.
int RunRank(std::vector<std::string> command);

// A wrapper sends two messages to the socket kMpiRanks: "RANK SIZE PID" at its start, and "CODE MESSAGE"
// when the rank has ended; CODE is -1 if its daemon ended before. The pod's program answers the second one.
// Without the second, the wrapper was killed.

}  // namespace ringmaster::agent
