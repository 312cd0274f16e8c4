// SPDX-License-Identifier: Apache-2.0

// Starts, signals and reaps child processes through a warden (warden.h), which outlives this process to end
// whatever they have started. When the warden is killed, its pods end with code 137, and another warden
// takes its place. The caller chooses the ids, each used once.
//
// Makes this process a subreaper. REQUIRES: this process has no other children, except those of other
// supervisors: the ones that it finds after the end of a warden are killed.
//
// Thread-safe: Start, Stop and Signal return at once and take effect in order. The callbacks run on the
// supervisor's thread and must not destroy the supervisor.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/time.h"
#include "operator/local/spawn.h"
#include "operator/local/warden.h"

namespace ringmaster::local {

class ProcessSupervisor {
 public:
  // Called once per Start: the process runs with this pid, or could not be started.
  using OnStart = std::function<void(const std::string& id, const Result<pid_t>& pid)>;
  // Called once per process that ran, when no process that it has started is left.
  using OnExit = std::function<void(const std::string& id, int exit_code)>;

  ProcessSupervisor(OnStart on_start, OnExit on_exit);
  // Kills the running processes and waits for their end. No callback runs after that.
  ~ProcessSupervisor();
  ProcessSupervisor(const ProcessSupervisor&) = delete;
  ProcessSupervisor& operator=(const ProcessSupervisor&) = delete;

  void Start(std::string id, SpawnSpec spec);
  // Sends SIGTERM to the process, and SIGKILL to its group after `grace` (at once if it is 0). May be called
  // again: the earliest deadline counts. Ignores unknown ids.
  void Stop(const std::string& id, Duration grace);
  // Sends a signal to the process, not to its group. Ignores unknown ids.
  void Signal(const std::string& id, int signal);

 private:
  void Post(WardenFrame frame);
  void Run();
  // Returns false when the warden is gone.
  bool Receive(int socket, WardenFrames* frames);
  void Handle(const WardenFrame& frame);
  // Ends what a dead warden has left, reports its pods, and starts another one.
  void ReplaceWarden();
  void AwaitWarden();
  bool closing();

  const OnStart on_start_;
  const OnExit on_exit_;

  Mutex mutex_;
  Warden warden_ RM_GUARDED_BY(mutex_);
  std::map<std::string, bool> pods_ RM_GUARDED_BY(mutex_);  // id: whether its start was reported
  bool closing_ RM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace ringmaster::local
