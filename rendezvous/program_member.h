// SPDX-License-Identifier: Apache-2.0

// ProgramMemberCore is the agent's side of the protocol for programs of users: it starts and stops one
// program as the coordinator orders, and reports what became of it.
//
// A pure state machine: On() takes an event and the time, Take() returns commands. It has no clock, socket or
// process. Not thread-safe. The agent (worker/agent/program/program_agent.h) passes every event with the
// time, performs Take()'s commands in order, and calls On(Tick) at next_wakeup().
//
// Invariants:
// - At most one program runs, and a new one starts only after ProgramEnded of the last one.
// - A failure is reported when it is known, and not when the last process of the program has ended: one in a
//   driver or on a dead disk may survive SIGKILL for ever.
// - Fence: an order about an older incarnation than the newest one known has no effect.
// - Losing the coordinator does not interrupt the program. The agent reconnects with back-off, without end,
//   and repeats its state.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/time.h"
#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

struct ProgramMemberOptions {
  Hello hello;  // sent first on every connection
  Duration ping_interval = milliseconds(200);
  Duration connect_backoff_min = milliseconds(10);
  Duration connect_backoff_max = milliseconds(300);
  // From SIGTERM to SIGKILL when the agent itself ends its program: RINGMASTER_STOP_SECONDS.
  Duration stop_grace = seconds(30);
  // After Leave: how long to wait for an order before the program is stopped without one.
  Duration leave_patience = seconds(5);
  // How long a program may survive SIGKILL, for example in a driver, before the agent exits without it.
  Duration exit_limit = seconds(10);
};

// ---- events
namespace program {
struct Started {};  // the first event, once
struct Tick {};
struct Connected {};
struct Disconnected {};  // also for a failed attempt to connect
struct FromCoordinator {
  Message message;
};
// No process of the program is left. Evidence as in ProgramState.
struct Ended {
  int32_t exit_code = 0;
  std::string evidence;
  std::string message;
  Duration ago{0};  // how long ago it failed, as far as is known; not negative
};
struct Failed {  // the first process of the program has failed by itself, and others have not ended yet
  Ended how;     // its exit code is not 0; Ended itself follows
};
// Processes of the program have survived SIGKILL for a while.
struct Survived {
  std::string processes;  // ProgramState::survivors
};
struct Hung {  // the program makes no progress: that is its failure; it is killed, and Ended follows
  std::string message;
};
struct Reported {  // the program has reported progress
  Progress progress;
};
struct Ranks {                       // that a launcher has started in the program
  int32_t started = 0;               // so many more
  std::vector<RankCount> succeeded;  // that have ended with exit code 0 since
};
struct Checked {  // what Check has found
  PeersChecked result;
};
struct Terminate {};  // SIGTERM or SIGINT: the first is a planned leave, the second ends at once
using Event = std::variant<Started, Tick, Connected, Disconnected, FromCoordinator, Ended, Failed, Survived,
                           Hung, Reported, Ranks, Checked, Terminate>;

// ---- commands
struct Connect {
  bool operator==(const Connect&) const = default;
};
struct Send {
  Message message;
  bool operator==(const Send&) const = default;
};
struct Start {  // Ended follows, also when it cannot be started
  StartProgram order;
  int32_t rank = 0;
  bool operator==(const Start&) const = default;
};
struct Update {  // the program runs on, and the members of its incarnation are others
  StartProgram order;
  bool operator==(const Update&) const = default;
};
// Take a step of the check of the network: Checked follows, unless another Check or Start comes before.
struct Check {
  CheckPeers order;
  size_t self = 0;  // index of this agent in order.members, of CheckStep::kConnect
  bool operator==(const Check&) const = default;
};
struct Signal {  // to the program; SIGKILL goes to all of its processes
  bool kill = false;
  bool operator==(const Signal&) const = default;
};
struct Exit {  // the last command: kill what is left, flush unsent messages, then exit
  int32_t code = 0;
  std::string message;
  bool finished = false;  // as in rendezvous::Exit
  bool operator==(const Exit&) const = default;
};
using Command = std::variant<Connect, Send, Start, Update, Check, Signal, Exit>;
}  // namespace program

class ProgramMemberCore {
 public:
  explicit ProgramMemberCore(const ProgramMemberOptions& options);

  void On(const program::Event& event, Time now);
  // Returns the commands since the last call.
  std::vector<program::Command> Take();
  // When Tick is due; kNever after Exit.
  Time next_wakeup() const;

  const ProgramState& state() const { return state_; }
  bool ended() const { return ended_; }

 private:
  bool runs() const {
    return state_.phase == ProgramPhase::kRunning || state_.phase == ProgramPhase::kStopping;
  }
  // Whether the current program has failed by itself.
  bool failed() const { return !state_.evidence.empty(); }
  void OnCoordinator(const Message& message, Time now);
  void OnStart(const StartProgram& order, Time now);
  void OnCheck(const CheckPeers& order);
  void OnEnded(const program::Ended& event, Time now);
  void OnFailed(const program::Failed& event, Time now);
  void OnSurvived(const program::Survived& event, Time now);
  void SetEnd(const program::Ended& end, Time now);
  void OnRanks(const program::Ranks& ranks, Time now);
  void OnTerminate(Time now);
  void OnTick(Time now);
  void Begin(const StartProgram& order);
  void Stop(Duration grace, Time now);
  void ExitWhenStopped(program::Exit exit, Duration grace, Time now);
  void Finish();
  void Report(Time now);
  void SendUp(Message message);  // does nothing without a connection

  ProgramMemberOptions options_;
  std::vector<program::Command> commands_;
  ProgramState state_;
  Time ended_at_{};
  std::optional<StartProgram> next_;  // to start when the current program has ended
  Time kill_at_ = kNever;             // of a program that is being stopped
  bool killed_ = false;               // it was sent SIGKILL

  bool connected_ = false;
  Time connect_at_ = kNever;
  Duration connect_backoff_;
  Time ping_at_ = kNever;
  bool leaving_ = false;               // SIGTERM was received
  Time leave_due_ = kNever;            // then the program is stopped without an order
  std::optional<program::Exit> exit_;  // to exit with when the program has ended
  Time exit_by_ = kNever;              // or at this time
  bool ended_ = false;
};

}  // namespace ringmaster::rendezvous
