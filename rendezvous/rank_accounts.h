// SPDX-License-Identifier: Apache-2.0

// Checks that the ranks that a launcher started have really run and succeeded. The exit code of a
// launcher proves neither: Open MPI 5 may return 0 after it has lost a daemon, and a launcher that ignores
// the hosts it should use starts all ranks where it runs. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

struct RanksOfWorker {
  std::string pod;
  const std::vector<RankCount>* ranks;  // that its agent has seen end with exit code 0
  bool launcher = false;                // the pod is a launcher's, and need not have a rank
  int32_t open = 0;                     // ranks that have started and not ended with exit code 0
};

// What FindMissingRank returns when no rank has ended anywhere: a restart would not change that.
inline constexpr const char* kNoRankSeen =
    "no agent has seen a rank: launch.mpi must name the MPI of the image, and the command must start mpirun, "
    "mpiexec or horovodrun, those of MPICH, Intel MPI and Horovod by their names instead of a path";
inline constexpr int32_t kNoRankExitCode = 64;  // which fails a job without a restart

// Returns what is missing, for people; empty when nothing is: at least one rank ran in each worker, and for
// each size of MPI_COMM_WORLD all of its ranks ended equally often.
std::string FindMissingRank(const std::vector<RanksOfWorker>& workers);

// The same for workers that come and go, whose ranks get other numbers meanwhile: every rank that a worker
// has started has ended, and ranks have ended on at least `min` workers. `workers`: those that are there.
std::string FindOpenRank(const std::vector<RanksOfWorker>& workers, int32_t min);

}  // namespace ringmaster::rendezvous
