// SPDX-License-Identifier: Apache-2.0

// MpiPod is the program of each pod of a job of framework mpi or horovod, which the agent starts for each
// incarnation (`ringmaster-agent ranks [-- COMMAND ARGS...]`). It
//  - runs the launcher, which is the user's command, if this is the pod of the launcher;
//  - starts what `ringmaster-agent rsh` of the launcher asks for: the daemons of MPI, or the ranks of
//    Horovod. Only a process that knows the pod's key of this incarnation may ask (mpi_files.h);
//  - learns from the wrappers of the ranks (mpi_rank.h) how each rank starts and ends, and reports to the
//    agent through the socket kMpiCounts: kMpiStarted, "RANK SIZE" for a success, and kMpiFailed with a text
//    for the first failure.
// It ends with the exit code of the launcher, or of the first rank or daemon that has failed. It has no state
// that outlives an incarnation. Signals reach the ranks of the pod, not the launcher, which may end by them.
// An ordered stop leaves the launcher and its daemons alone while ranks may still save in any pod.
//
// Main thread only. REQUIRES: the signals are not blocked, and SIGPIPE is ignored or default.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/agent/mpi/mpi_channel.h"
#include "worker/agent/mpi/mpi_files.h"

namespace ringmaster::agent {

class MpiPod {
 public:
  // `launcher` empty: this pod only runs ranks.
  MpiPod(std::string folder, MpiPeer self, std::vector<std::string> launcher);
  ~MpiPod();

  Status Open();
  // Returns the exit code.
  int Run();

 private:
  struct Session;  // one remote command

  struct Rank {
    Fd socket;
    std::string name;  // empty: it has not said who it is
    std::string count;
    pid_t pid = 0;
    bool ended = false;
  };
  struct Failure {
    int32_t code;
    std::string text;
    Time due;  // when this process ends for it
  };

  Status StartLauncher();
  void Wait();
  void OnSignals();
  void Pass(int signal) const;
  void OnChild(pid_t pid, int status);
  void Accept(Time now);
  void AcceptRanks();
  void ReadRank(Rank& rank);
  void OnRankEnded(Rank& rank, int32_t code, const std::string& words);
  void StopAll(Time now);
  // The first failure counts, unless it is a probable consequence and another one is not.
  void Fail(int32_t code, std::string text, Duration linger);
  // Reports why this process is going to fail, to the agent and in the log.
  void Report(const std::string& text);
  bool IsEnded() const;
  // Fails when ranks run that no agent sees: the job would train in one pod, and fail when it ends.
  void CheckRanks(Time now);

  std::string folder_;
  MpiPeer self_;
  std::vector<std::string> command_;
  Fd listener_;
  Fd rank_listener_;
  Fd counts_;
  Fd signals_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  pid_t launcher_ = -1;
  std::optional<int> launcher_code_;
  std::optional<Failure> failure_;
  bool stopping_ = false;  // SIGTERM was received: nothing is a failure any more
  Time launcher_term_at_ = kNever;
  Time check_ranks_at_ = kNever;  // while the launcher runs
  pid_t unseen_rank_ = -1;        // at the last check
};

// The program: reads its place from the environment.
int RunMpiPod(std::vector<std::string> launcher);

}  // namespace ringmaster::agent
