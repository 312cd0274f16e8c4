// SPDX-License-Identifier: Apache-2.0

// MemberCore is the agent's side of the protocol: it mediates between the coordinator and one trainer
// process.
//
// A pure state machine: On() takes an event and the time, Take() returns commands. It has no clock, socket or
// process. Not thread-safe.
//
// The agent (worker/agent) passes every event with the time, performs Take()'s commands in order, and calls
// On(Tick) at next_wakeup(). It has at most one connection, and closes it before it opens the next.
//
// Invariants:
// - Member ids are "<agent>.<n>" with increasing n: an id is never used twice.
// - Generation fence: a Prepare older than one already seen, and a NewGeneration that does not belong to the
//   newest Prepare or was already delivered, are not forwarded to the trainer.
// - Every new connection starts with a repetition of what the coordinator must not miss: Join, Leave, Done,
//   Fatal, OperationFailed, the last Down, the newest progress records. A repeated Prepare is answered from
//   memory.
// - Losing the coordinator does not interrupt the trainer. The agent reconnects with back-off, without end: a
//   trainer that waits for an order keeps its state.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/time.h"
#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

struct MemberOptions {
  Hello hello;  // sent first on every connection
  Duration ping_interval = milliseconds(200);
  Duration connect_backoff_min = milliseconds(10);
  Duration connect_backoff_max = milliseconds(300);
  // The restart of a trainer that lived shorter than `stable_after` is delayed; the delay doubles each time.
  // Other trainers restart at once.
  Duration restart_backoff_min = milliseconds(100);
  Duration restart_backoff_max = seconds(10);
  Duration stable_after = seconds(5);
  // After Exit: how long the trainer may take to exit before it is killed.
  Duration exit_grace = seconds(10);
  // After Leave: how long to wait for Exit before the trainer is killed; below the pod's grace period.
  Duration leave_grace = seconds(100);
  // After Exit{after_program}: how long the program may take to end by itself; zero: no limit. nullopt: the
  // trainer is no program of a user.
  std::optional<Duration> after_loop = {};
  // How long its agent then waits for the answer of the coordinator.
  Duration answer_grace = seconds(90);
  // Exit when the coordinator refuses the trainer, so that a new pod can run on another node. Otherwise a new
  // trainer starts here, after a pause.
  bool exit_when_refused = false;
};

// ---- events
struct Started {};  // the first event, once
struct Tick {};
struct Connected {};
struct Disconnected {};  // also for a failed attempt to connect
struct FromCoordinator {
  Message message;
};
struct FromTrainer {
  // Join (its `member` may be empty), Facts, MemberStatus, OperationFailed, Progress, Done, Fatal
  Message message;
};
// The trainer is dead or must be treated as dead. Sent as soon as this is known, after everything in its
// channel has been read. Evidence as in Down. The answer is KillTrainer, so that the trainer is certainly
// dead.
struct TrainerLost {
  std::string evidence;
  std::string message;
};
// waitpid has returned the trainer. May come without a preceding TrainerLost.
struct TrainerReaped {
  int32_t exit_code = 0;  // 128 + signal when a signal ended it
};
struct Terminate {
};  // SIGTERM or SIGINT: the first is a planned leave, unless the job has ended; the second exits at once
using MemberEvent = std::variant<Started, Tick, Connected, Disconnected, FromCoordinator, FromTrainer,
                                 TrainerLost, TrainerReaped, Terminate>;

// ---- commands
struct Connect {
  bool operator==(const Connect&) const = default;
};
struct SendCoordinator {
  Message message;
  bool operator==(const SendCoordinator&) const = default;
};
struct SendTrainer {
  Message message;  // Prepare, NewGeneration, Exit
  bool operator==(const SendTrainer&) const = default;
};
struct StartTrainer {
  std::string member;
  bool operator==(const StartTrainer&) const = default;
};
struct KillTrainer {   // SIGKILL; harmless when it is already dead. TrainerReaped follows.
  bool hangs = false;  // show before where it hangs, if that is possible
  bool operator==(const KillTrainer&) const = default;
};
struct ExitAgent {  // the last command: flush unsent messages, then exit
  int32_t code = 0;
  std::string message;
  bool finished = false;  // as in Exit
  bool operator==(const ExitAgent&) const = default;
};
using MemberCommand =
    std::variant<Connect, SendCoordinator, SendTrainer, StartTrainer, KillTrainer, ExitAgent>;

class MemberCore {
 public:
  explicit MemberCore(const MemberOptions& options);

  void On(const MemberEvent& event, Time now);
  // Returns the commands since the last call.
  std::vector<MemberCommand> Take();
  // When Tick is due; kNever after ExitAgent.
  Time next_wakeup() const;

  // The current trainer's id; empty when none runs.
  const std::string& member() const { return member_; }
  bool ended() const { return stage_ == Stage::kEnded; }

 private:
  enum class Stage {
    kRunning,
    kLeaving,    // sent Leave, waits for Exit
    kAfterLoop,  // received Exit{after_program}: waits for the program's end, then for another Exit
    kEnding,     // received Exit, or was refused: waits for the trainer's end or the deadline
    kEnded,
  };
  enum class Trainer {
    kNone,     // no process; it restarts at restart_at_, if ever
    kRunning,  // started; join_ is set once it has joined
    kLost,     // treated as dead, not reaped yet
  };

  void OnConnected(Time now);
  void OnCoordinator(const Message& message, Time now);
  void OnExit(const Exit& exit, Time now);
  void BeginAfterLoop(const Exit& exit, Time now);
  void StartAgain(const Evict& evict, Time now);
  void OnProgramEnd(int32_t exit_code, Time now);
  void OnTrainer(const Message& message);
  void OnLost(const std::string& evidence, const std::string& message, int32_t exit_code = 0);
  void OnReaped(int32_t exit_code, Time now);
  void OnEvict(const Evict& evict, Time now);
  void SendJoin();
  void SendFatal(Fatal fatal);
  void ScheduleRestart(Time now);
  void OnTerminate(Time now);
  void OnTick(Time now);
  // Sends its records in several messages.
  void SendProgress(Progress progress);
  void SendToCoordinator(Message message);  // does nothing without a connection
  void EndBy(int32_t code, const std::string& reason, Time deadline);
  void Finish(int32_t code, const std::string& reason);

  MemberOptions options_;
  std::vector<MemberCommand> commands_;
  Stage stage_ = Stage::kRunning;
  Time deadline_ = kNever;  // of kLeaving and kEnding
  int32_t end_code_ = 0;
  std::string end_reason_;
  bool exit_received_ = false;
  bool finished_ = false;  // Exit has said so
  bool terminated_ = false;

  bool connected_ = false;
  Time connect_at_ = kNever;
  Duration connect_backoff_;
  Time ping_at_ = kNever;

  Trainer trainer_ = Trainer::kNone;
  std::string member_;
  uint64_t incarnation_ = 0;
  bool joined_ = false;   // the newest incarnation has sent Join
  bool evicted_ = false;  // the coordinator has evicted it
  Time started_at_;
  Time ended_at_;  // of the last trainer that was reaped
  Time restart_at_ = kNever;
  Duration restart_backoff_;

  Generation prepared_ = 0;              // newest Prepare received, over all incarnations
  bool prepare_forwarded_ = false;       // this incarnation has received it
  Generation forwarded_generation_ = 0;  // newest NewGeneration forwarded to a trainer
  std::optional<MemberStatus> status_;   // the answer to `prepared_`
  std::optional<Join> join_;
  std::optional<Facts> facts_;
  std::optional<Down> down_;               // of the last dead incarnation, until the next one joins
  std::optional<OperationFailed> failed_;  // in the current generation
  std::optional<Done> done_;
  std::optional<Fatal> fatal_;     // not answered yet: no trainer starts until the coordinator has decided
  std::deque<StepRecord> recent_;  // the newest records forwarded
  Progress progress_;              // the other fields of the last Progress, and the newest results
};

}  // namespace ringmaster::rendezvous
