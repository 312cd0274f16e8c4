// SPDX-License-Identifier: Apache-2.0

// Agent supervises the trainer of a worker pod. One event loop passes events of the trainer, the coordinator
// connection and the process's signals to rendezvous::MemberCore, and performs its commands. It can run as
// PID 1: it reaps orphans and forwards SIGTERM.
//
// Not thread-safe; main thread only. REQUIRES: SIGTERM, SIGINT and SIGCHLD are blocked before Run (main.cc
// does).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/time.h"
#include "rendezvous/member.h"
#include "worker/agent/shell/coordinator_link.h"
#include "worker/agent/shell/event_pump.h"
#include "worker/agent/shell/log_pipe.h"
#include "worker/agent/shell/termination.h"
#include "worker/agent/trainer/busy_meter.h"
#include "worker/agent/trainer/config.h"
#include "worker/agent/trainer/hang_watch.h"
#include "worker/agent/trainer/trainer_process.h"

namespace ringmaster::agent {

class Agent {
 public:
  static constexpr Duration kSampleInterval = milliseconds(20);
  static constexpr Duration kEofGrace = milliseconds(200);
  // From the death of a program to SIGKILL for a shell that started it, which ends with its exit code.
  static constexpr Duration kShellGrace = milliseconds(200);
  // From SIGABRT to SIGKILL for a program that hangs: Python prints its stacks meanwhile.
  static constexpr Duration kStackGrace = seconds(2);

  // The configuration determines `timing.hello`.
  explicit Agent(Config config, const rendezvous::MemberOptions& timing = {});

  // Runs until the core commands ExitAgent, and returns the exit code. Writes the termination message unless
  // the code is 0.
  int Run();

 private:
  struct Ready;  // the results of one poll

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
  void KillTrainer(bool hangs);
  // Whether the code of the user runs that follows the training: it may close the library, take as long as it
  // takes, and start further programs. MemberCore has the limit.
  bool Finishing() const { return config_.trainer.is_program && exit_sent_; }
  void StartDeathWatch();
  void Sample(Time now);
  void EndIfStopped(Time now);
  void Reap();
  void OnTrainerExit(int status);
  std::string NoteOfExit(int code) const;

  // After ExitAgent: sends pending messages, kills the trainer and its children, flushes the logs.
  void Shutdown();
  std::string TailText() const;
  std::string LastErrorLine() const;

  Config config_;
  rendezvous::MemberCore core_;
  CoordinatorLink link_;
  LogPipe out_;
  LogPipe err_;
  Fd signals_;

  std::unique_ptr<TrainerProcess> trainer_;  // until it is reaped
  std::optional<int> reaped_code_;           // of a trainer that has ended, while processes of it are left
  std::optional<HangWatch> hang_watch_;      // until the trainer is lost
  std::optional<HangWatch> stop_watch_;      // of a program after its last step
  BusyMeter busy_;                           // of the trainer
  std::optional<Time> channel_ended_at_;
  bool channel_open_ = false;
  bool fatal_sent_ = false;  // this incarnation has sent Fatal
  bool exit_sent_ = false;   // this incarnation has received Exit
  std::string end_note_;     // what its exit code means, if that alone says too little
  std::string stop_note_;    // why EndIfStopped has killed this incarnation
  Time sample_at_ = kNever;
  bool died_ = false;      // the death watch has seen its end
  Time kill_at_ = kNever;  // KillTrainer that waits for a shell

  EventPump<rendezvous::MemberCore, rendezvous::MemberEvent> pump_{&core_};
  std::optional<rendezvous::ExitAgent> exit_;
};

}  // namespace ringmaster::agent
