// SPDX-License-Identifier: Apache-2.0

// What the agent of a job of framework mpi or horovod leaves in its private folder for the processes of one
// incarnation, and the variables that make mpirun, mpiexec and horovodrun use it. Everything is written again
// for each incarnation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "rendezvous/messages.h"

namespace ringmaster::agent {

// Names the folder.
inline constexpr const char* kMpiFolderVariable = "RINGMASTER_MPI_FOLDER";
// All pods are on one machine.
inline constexpr const char* kMpiLocalVariable = "RINGMASTER_MPI_LOCAL";
// Names the implementation of MPI (MpiSetup).
inline constexpr const char* kMpiImplementationVariable = "RINGMASTER_MPI";
// The fewest workers of a job whose workers come and go; not set: they do not.
inline constexpr const char* kMpiMinVariable = "RINGMASTER_MPI_MIN";
// The name of this pod as a host.
inline constexpr const char* kMpiHostVariable = "RINGMASTER_MPI_HOST";
// Names of files in it.
inline constexpr const char* kMpiPeers = "/peers";              // see MpiPeer
inline constexpr const char* kMpiHosts = "/hosts";              // the hosts of mpirun, by rank
inline constexpr const char* kHorovodHosts = "/horovod-hosts";  // the hosts of horovodrun
inline constexpr const char* kMpiRanks = "/ranks";  // socket of the pod's program, for its ranks (mpi_rank.h)
inline constexpr const char* kMpiCounts = "/counts";  // socket of the agent: ranks that succeeded (mpi_pod.h)
inline constexpr const char* kMpiFailed = "!";   // begins the message that a rank or the launcher has failed
inline constexpr const char* kMpiStarted = "+";  // the message that a rank has started
inline constexpr const char* kMpiBin = "/bin";   // folder with links by the names of others (mpi_links.h)
inline constexpr const char* kMpiRsh = "/ringmaster-rsh";  // link to the agent's program

// Where a pod's program (mpi_pod.h) takes commands, and the key without which it takes none. Only this user
// can read the file.
struct MpiPeer {
  std::string pod;  // its name as a host of the launcher
  std::string host;
  std::string port;
  std::string key;  // empty: it has none, and no channel to it can be made
};

// The implementation of a job of framework horovod without spec.launch.mpi: its ranks communicate by gloo.
inline constexpr const char* kGloo = "gloo";

struct MpiSetup {
  std::string framework;       // mpi | horovod
  std::string implementation;  // as spec.launch.mpi, or kGloo
  int32_t slots = 1;           // of each host
  std::string agent;           // the path of the agent's program
  std::string folder;
  std::string host;  // HostName of this pod
};

// Returns the name of a member's pod as a host of the launcher: that of the pod, or another one each time
// when it joined an incarnation that ran. Horovod does not use a host again on which a rank has failed.
std::string HostOf(const rendezvous::Member& member);

// Writes the files.
Status WriteMpiFiles(const MpiSetup& setup, const rendezvous::StartProgram& order);
// Writes those that name the members again.
Status WriteMpiMembers(const MpiSetup& setup, const std::vector<rendezvous::Member>& members);

Result<std::vector<MpiPeer>> ReadMpiPeers(const std::string& folder);
// Errors: kNotFound with the names that there are.
Result<MpiPeer> FindMpiPeer(const std::vector<MpiPeer>& peers, const std::string& pod);

// The place of a process in its pod.
struct MpiPlace {
  std::string folder;
  std::string agent;  // the path of the agent's program, which is this one
  MpiPeer self;
  std::vector<MpiPeer> peers;
};
// Reads the environment. Errors: this is no process of a pod with a launcher.
Result<MpiPlace> FindMpiPlace();

// Returns the rank of the program that launches the others: that of the role launcher, or else the first.
int32_t LauncherAmong(const std::vector<rendezvous::Member>& members);

// Text of a file of hosts: the workers. `words`: "HOST slots=N" in a line, and otherwise "HOST:N".
std::string MpiHosts(const std::vector<rendezvous::Member>& members, int32_t slots, bool words);

// Returns "NAME=value". Those that only choose a default are left out when the environment has them
// (`is_set`): they are the user's. `loopback`: all pods are on this machine. `path`: PATH of the pod.
std::vector<std::string> MpiVariables(const MpiSetup& setup, bool loopback, const std::string& path,
                                      bool (*is_set)(const char* name));

}  // namespace ringmaster::agent
