// SPDX-License-Identifier: Apache-2.0

// One child process that cannot outlive us: own session (so own process group), own folder and log, dies with
// the thread that started it, inherits no descriptor. Linux only.
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
  std::string folder;                              // made when missing; the working folder
  std::string log;                                 // stdout and stderr are appended here
};

struct Process {
  pid_t pid = -1;
  Fd pidfd;
};

// Call it from a thread that lives as long as the child may: the child gets SIGKILL when that *thread* ends.
// kUnavailable: the system has no room for a process now; kInvalid: this can never start (message says why).
Result<Process> Spawn(const SpawnSpec& spec);

// The exit code (128 + signal for signals) of a child that has ended, without reaping it: until Reap its pid
// names nobody else.
int PeekExitCode(const Process& process);
void Reap(const Process& process);

// To the whole group; processes that are gone are no error.
void SignalGroup(pid_t group, int signal);

// A process of that group that is not a zombie exists.
bool GroupAlive(pid_t group);

}  // namespace ringmaster::local
