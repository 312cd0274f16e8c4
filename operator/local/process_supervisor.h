// SPDX-License-Identifier: Apache-2.0

// Keeps child processes: starts, signals and reaps them on one thread, which lives as long as the keeper
// (children die with the thread that started them, spawn.h). Ids are the caller's and are not used twice.
//
// Start, Stop and Signal may be called from any thread and return at once; they take effect in order. The
// callbacks come from the keeper's thread and must not destroy the keeper.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/time.h"
#include "operator/local/spawn.h"

namespace ringmaster::local {

class ProcessSupervisor {
 public:
  // Once per Start: it runs with this pid, or never will.
  using OnStart = std::function<void(const std::string& id, const Result<pid_t>& pid)>;
  // Once per process that ran. Whatever was left of its group has got SIGKILL.
  using OnExit = std::function<void(const std::string& id, int exit_code)>;

  ProcessSupervisor(OnStart on_start, OnExit on_exit);
  // Kills all that still runs, waits until it is gone. No callback comes after that.
  ~ProcessSupervisor();
  ProcessSupervisor(const ProcessSupervisor&) = delete;
  ProcessSupervisor& operator=(const ProcessSupervisor&) = delete;

  void Start(std::string id, SpawnSpec spec);
  // SIGTERM to the process, SIGKILL to its group after `grace`; at once when that is 0. May be repeated: the
  // earlier end counts. Unknown ids are ignored.
  void Stop(const std::string& id, Duration grace);
  // To the process alone.
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

  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;  // guarded by mutex_
  bool closing_ = false;                      // guarded by mutex_

  std::map<std::string, Child> children_;  // the thread's own
  std::thread thread_;
};

}  // namespace ringmaster::local
