// SPDX-License-Identifier: Apache-2.0

// The process keeper of a pod: one loop that feeds rendezvous::MemberCore with what happens to the trainer,
// to the connection and to the process itself, and carries out its commands. Fit to be PID 1: it reaps
// orphans and forwards the end.
//
// Main thread only; signals SIGTERM, SIGINT and SIGCHLD must be blocked before Run (main.cc does).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/time.h"
#include "rendezvous/member.h"
#include "worker/agent/config.h"
#include "worker/agent/coordinator_link.h"
#include "worker/agent/hang_watch.h"
#include "worker/agent/log_pipe.h"
#include "worker/agent/termination.h"
#include "worker/agent/trainer_process.h"

namespace ringmaster::agent {

class Agent {
 public:
  static constexpr Duration kSampleInterval = milliseconds(20);
  static constexpr Duration kEofGrace = milliseconds(200);

  // `timing` without `hello`, which follows from the configuration.
  explicit Agent(Config config, const rendezvous::MemberOptions& timing = {});

  // Until the core says ExitAgent; returns the exit code. Writes the termination log unless it is 0.
  int Run();

 private:
  struct Ready;  // what one poll reported

  Ready Wait();
  void OnReady(const Ready& ready, Time now);
  void Feed(const rendezvous::MemberEvent& event);
  void Execute(const rendezvous::MemberCommand& command);
  void Start(const std::string& member);
  void Send(rendezvous::Message message);
  void SendTrainer(const rendezvous::Message& message);

  void OnSignals();
  void OnLink(short revents, Time now);
  void ReadLink();
  void LoseLink(const Error& why);
  void ReadChannel(Time now);
  void LoseTrainer(const std::string& evidence, const std::string& message);
  void StartDeathWatch();
  void Sample(Time now);
  void Reap();
  void OnTrainerExit(int status);

  // After ExitAgent: sends what is unsent, ends what is left of the trainer, writes the logs out.
  void Shutdown();
  std::string TailText() const;

  Config config_;
  rendezvous::MemberCore core_;
  CoordinatorLink link_;
  LogPipe out_;
  LogPipe err_;
  Fd signals_;

  std::unique_ptr<TrainerProcess> trainer_;  // until it is reaped
  std::optional<HangWatch> hang_watch_;      // until it is taken for lost
  std::optional<Time> channel_ended_at_;
  bool channel_open_ = false;
  bool fatal_sent_ = false;  // by this incarnation
  Time sample_at_ = kNever;

  std::deque<rendezvous::MemberEvent> events_;  // consequences of the command being executed
  bool executing_ = false;
  std::optional<rendezvous::ExitAgent> exit_;
};

}  // namespace ringmaster::agent
