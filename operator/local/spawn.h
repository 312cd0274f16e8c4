// SPDX-License-Identifier: Apache-2.0

// Starts a child process that cannot outlive this one: it has its own session and process group, working
// folder and log, gets SIGKILL when the thread that started it ends, and inherits no descriptors. Linux only.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace ringmaster::local {

struct SpawnSpec {
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;  // added to ours
  std::string folder;                              // the working folder; created if missing
  std::string log;                                 // stdout and stderr are appended here
};

struct Process {
  pid_t pid = -1;
  Fd pidfd;
};

// REQUIRES: the calling thread lives as long as the child may; the child gets SIGKILL when that *thread*
// ends. Errors: kUnavailable when the system cannot start a process now; kInvalid when this process can never
// start.
Result<Process> Spawn(const SpawnSpec& spec);

// Returns the exit code of a child that has ended (128 + signal for signals). Does not reap it: until Reap no
// other process can get its pid.
int PeekExitCode(const Process& process);
void Reap(const Process& process);

// Signals the whole group. It is no error if the group has ended.
void SignalGroup(pid_t group, int signal);

// Returns true if the group has a process that is not a zombie.
bool GroupAlive(pid_t group);

}  // namespace ringmaster::local
