// SPDX-License-Identifier: Apache-2.0

// Starts, signals and reaps child processes on one thread, which lives as long as the supervisor: children
// die with the thread that started them (spawn.h). The caller chooses the ids, each used once.
//
// Thread-safe: Start, Stop and Signal return at once and take effect in order. The callbacks run on the
// supervisor's thread and must not destroy the supervisor.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/time.h"
#include "operator/local/spawn.h"

namespace ringmaster::local {

class ProcessSupervisor {
 public:
  // Called once per Start: the process runs with this pid, or could not be started.
  using OnStart = std::function<void(const std::string& id, const Result<pid_t>& pid)>;
  // Called once per process that ran. Its process group has received SIGKILL.
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
  struct Child {
    Process process;
    Time kill_at = kNever;
  };

  void Post(std::function<void()> task);
  void Run();
  void StartNow(const std::string& id, const SpawnSpec& spec);
  void StopNow(const std::string& id, Duration grace);
  void CollectEnded();
  void KillOverdue(Time now);
  void KillAll();

  const OnStart on_start_;
  const OnExit on_exit_;
  Fd wake_;  // eventfd

  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ RM_GUARDED_BY(mutex_);
  bool closing_ RM_GUARDED_BY(mutex_) = false;

  // Used by thread_ only.
  std::map<std::string, Child> children_;
  std::vector<pid_t> ending_;  // groups of children that have ended, which may still have killed processes
  std::thread thread_;
};

}  // namespace ringmaster::local
