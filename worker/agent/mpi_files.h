// SPDX-License-Identifier: Apache-2.0

// What the agent of a job of framework mpi leaves in its private folder for the processes of one incarnation,
// and the variables that make mpirun and mpiexec use it. Everything is written again for each incarnation.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/result.h"
#include "rendezvous/messages.h"

namespace ringmaster::agent {

// Names the folder.
inline constexpr const char* kMpiFolderVariable = "RINGMASTER_MPI_FOLDER";
// All pods are on one machine.
inline constexpr const char* kMpiLocalVariable = "RINGMASTER_MPI_LOCAL";
// Names of files in it.
inline constexpr const char* kMpiPeers = "/peers";  // see MpiPeer
inline constexpr const char* kMpiHosts = "/hosts";  // the hosts of mpirun, by rank
inline constexpr const char* kMpiRanks = "/ranks";  // socket of the pod's program, for its ranks (mpi_rank.h)
inline constexpr const char* kMpiCounts = "/counts";  // socket of the agent: ranks that succeeded (mpi_pod.h)
inline constexpr const char* kMpiFailed = "!";  // begins the message that a rank or the launcher has failed
inline constexpr const char* kMpiBin = "/bin";  // folder with links by the names of Hydra (mpi_hydra.h)
inline constexpr const char* kMpiRsh = "/ringmaster-rsh";  // link to the agent's program

// Where a pod's program (mpi_pod.h) takes commands, and the key without which it takes none. Only this user
// can read the file.
struct MpiPeer {
  std::string pod;  // its name as a host of mpirun
  std::string host;
  std::string port;
  std::string key;
};

// Writes the files. `slots`: of each host. `agent`: the path of the agent's program.
// `implementation`: as spec.launch.mpi.
Status WriteMpiFiles(const std::string& folder, const rendezvous::StartProgram& order,
                     const std::string& implementation, int32_t slots, const std::string& agent);

Result<std::vector<MpiPeer>> ReadMpiPeers(const std::string& folder);
// Errors: kNotFound with the names that there are.
Result<MpiPeer> FindMpiPeer(const std::vector<MpiPeer>& peers, const std::string& pod);

// Returns the rank of the program that launches the others: that of the role launcher, or else the first.
int32_t LauncherAmong(const std::vector<rendezvous::Member>& members);

// Text of the hosts file: the workers.
std::string MpiHosts(const std::vector<rendezvous::Member>& members, const std::string& implementation,
                     int32_t slots);

// Returns what a launcher that failed has said, from the newest lines of its output: the paragraph that Open
// MPI frames with dashes, or else the last line that is not empty.
std::string LauncherWords(const std::deque<std::string>& tail);

// Returns "NAME=value". Those that only choose a default are left out when the environment has them
// (`is_set`): they are the user's. `loopback`: all pods are on this machine. `path`: PATH of the pod.
std::vector<std::string> MpiVariables(const std::string& implementation, const std::string& folder,
                                      const std::string& agent, int32_t slots, bool loopback,
                                      const std::string& path, bool (*is_set)(const char* name));

}  // namespace ringmaster::agent
