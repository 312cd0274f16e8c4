// SPDX-License-Identifier: Apache-2.0

// ProgramProcess is one run of a user's program: the process that was started, and everything that descends
// from it. It has ended only when no process of it is left, so that nothing of one incarnation can disturb
// the next.
//
// Main thread only: the kernel binds PDEATHSIG to the thread that forks. REQUIRES: this process is PID 1 or
// a subreaper, so that orphans of the program become its children, and it has no other children, except a
// spare (spare_program.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/time.h"

namespace ringmaster::agent {

class ProgramProcess {
 public:
  // Starts the program, which leads a separate process group. Its environment is the agent's without what
  // belongs to the agent (the secret, the coordinator), overridden by `variables` ("NAME=value").
  // PYTHONUNBUFFERED and PYTHONFAULTHANDLER are set unless the agent has them.
  // `input`: its standard input; -1: empty. Errors: kNotFound and others of exec, with the command's name.
  static Result<ProgramProcess> Start(const std::vector<std::string>& command,
                                      const std::vector<std::string>& variables, int input = -1);
  // The environment that Start gives it.
  static std::vector<std::string> EnvironmentWith(const std::vector<std::string>& variables);

  pid_t pid() const { return pid_; }

  // Return the non-blocking ends of its output. Call once each.
  Fd TakeStdout() { return std::move(stdout_); }
  Fd TakeStderr() { return std::move(stderr_); }

  // Sends SIGTERM to the process that was started. Its children are its own matter, until it has ended: a
  // shell ends at once, and Reap sends SIGTERM to the program behind it.
  void Terminate();
  // Sends another signal to the process that was started. Where that neither catches nor blocks it, like a
  // shell, those of its descendants get it that do.
  void Signal(int signal) const;
  // In these, `spare` is a child of this process that is not part of the program; -1: none.

  // Sends SIGKILL to all processes of the program.
  void Kill(pid_t spare = -1);

  // Collects children that have ended, and kills what the program's first process leaves behind; after
  // Terminate it sends SIGTERM instead, until Kill. Returns the exit code of the first process (128 + signal
  // for signals) once no process is left; call it at every SIGCHLD.
  std::optional<int> Reap(pid_t spare = -1);
  // Returns the exit code of its first process, while others may still be dying.
  std::optional<int> exit_code() const { return exit_code_; }

  // Returns the children of this process that SIGKILL was sent to, and that have not ended. A process ends
  // when the kernel lets it: in a driver, or at a disk that is gone, that may be never.
  std::vector<pid_t> Survivors(pid_t spare = -1) const;
  // Whether SIGKILL was sent.
  bool killed() const { return killed_; }

  struct Activity {
    Duration cpu{};        // of all of its processes that run now or were collected
    bool stopped = false;  // one of them is stopped by a signal
  };
  // Reads what its processes do. A process that cannot be read does nothing.
  Activity Observe(pid_t spare = -1) const;

 private:
  void TerminateRest(const std::vector<pid_t>& rest);

  pid_t pid_ = -1;
  Fd stdout_;
  Fd stderr_;
  std::optional<int> exit_code_;
  bool stopping_ = false;  // SIGTERM was sent, and no SIGKILL
  bool killed_ = false;
  std::vector<pid_t> terminated_;  // of the processes that the first one has left: they have got SIGTERM
};

// A port for the next program of this agent: bound, so that no other process gets it, until it is released.
class ReservedPort {
 public:
  // Binds `port`; 0: any free one. Errors: kUnavailable when another process has it.
  static Result<ReservedPort> Reserve(int32_t port);
  int32_t port() const { return port_; }

 private:
  Fd socket_;
  int32_t port_ = 0;
};

}  // namespace ringmaster::agent
