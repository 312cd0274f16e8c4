// SPDX-License-Identifier: Apache-2.0

// Hydra, the launcher of MPICH and of Intel MPI, has no setting that puts a wrapper in front of the ranks. So
// the names of its launcher lead to the agent's program, which starts the real one with a changed command:
// the wrapper (mpi_rank.h) before each program, and an address of this pod instead of its name, which other
// pods cannot resolve.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringmaster::agent {

// The names of Hydra's launcher.
inline constexpr std::string_view kHydraNames[] = {"mpirun", "mpiexec", "mpiexec.hydra", "mpirun.mpich",
                                                   "mpiexec.mpich"};
bool IsHydraName(std::string_view path);

// Returns the arguments after the launcher's name, with `agent` and "rank" before each program. `is_program`:
// whether a word names a program, for options that are not known here.
std::vector<std::string> WrapHydraRanks(const std::vector<std::string>& arguments, const std::string& agent,
                                        bool (*is_program)(const std::string& word));

// Returns the network interface of this pod, which has the address `host`, where the launcher needs one: that
// of Intel MPI gives its own name to other pods otherwise, whatever -localhost says. Empty: it needs none.
std::string HydraInterface(const char* implementation, const std::string& host);

// Runs the real launcher in place of this process. `words`: as this process was called; a path is that of the
// real launcher unless it leads here, and a name is looked up in PATH. Returns only an exit code of a
// failure.
int RunHydra(std::vector<std::string> words);

}  // namespace ringmaster::agent
