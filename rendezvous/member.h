// SPDX-License-Identifier: Apache-2.0

// The agent's side of the protocol, as a pure machine: it stands between the coordinator, one trainer process
// and the process's own fate. Events in, commands out; it knows no clock, socket or process. One thread.
//
// The shell (worker/agent) feeds every event with the time, then carries out Take()'s commands in order, and
// calls again at next_wakeup() with Tick. It makes one connection at a time, and closes it before the next.
//
// Rules it keeps:
// - Ids of members are "<agent>.<n>", n rising: an id is never used twice.
// - Generation fence: a Prepare older than one already seen, and a NewGeneration that does not belong to the
//   newest Prepare or was already delivered, go no further than here.
// - What the coordinator must not miss (Join, Leave, Done, Fatal, the last Down, the newest progress records)
//   is said again on every new connection; the answer to a repeated Prepare comes from memory.
// - Losing the coordinator stops nothing: the trainer goes on, connecting is tried again with back-off.
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
  Duration restart_backoff_min = milliseconds(100);  // a trainer that fell sooner than `stable_after` waits
  Duration restart_backoff_max = seconds(10);        // this long, doubled each time; others start at once
  Duration stable_after = seconds(5);
  Duration exit_grace = seconds(10);  // Exit -> the trainer has ended, else it is killed
  Duration leave_grace =
      seconds(100);  // Leave -> Exit from the coordinator, else killed (pod grace is limited)
  Duration fatal_grace = seconds(2);          // Fatal -> Exit from the coordinator, else we end by ourselves
  Duration give_up_after = Duration::zero();  // without a coordinator for this long: end with 1; zero: never
};

// ---- events
struct Started {};  // once, first: the process is up
struct Tick {};
struct Connected {};
struct Disconnected {};  // also a failed attempt
struct FromCoordinator {
  Message message;
};
struct FromTrainer {
  Message message;  // Join (its `member` may be empty), Facts, MemberStatus, Progress, Done, Fatal
};
// The trainer is dead or must be taken for dead; tell it as soon as it is known, after reading out its
// channel. Evidence as in Down. The member core answers with KillTrainer, so that it is dead for sure.
struct TrainerLost {
  std::string evidence;
  std::string message;
};
// waitpid has answered: nothing of it is left. Without a TrainerLost before, this is the news itself.
struct TrainerReaped {
  int32_t exit_code = 0;  // 128 + signal for signals
};
struct Terminate {};  // SIGTERM or SIGINT: the first is a planned leave, the second ends at once
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
struct KillTrainer {  // SIGKILL; harmless when it is dead already. TrainerReaped follows.
  bool operator==(const KillTrainer&) const = default;
};
struct ExitAgent {  // last command: write out what is still to be sent, then end
  int32_t code = 0;
  std::string message;
  bool operator==(const ExitAgent&) const = default;
};
using MemberCommand =
    std::variant<Connect, SendCoordinator, SendTrainer, StartTrainer, KillTrainer, ExitAgent>;

class MemberCore {
 public:
  explicit MemberCore(const MemberOptions& options);

  void On(const MemberEvent& event, Time now);
  std::vector<MemberCommand> Take();
  // When Tick is due; kNever after ExitAgent.
  Time next_wakeup() const;

  // The current trainer's id; empty when none runs.
  const std::string& member() const { return member_; }
  bool ended() const { return stage_ == Stage::kEnded; }

 private:
  enum class Stage {
    kRunning,
    kLeaving,  // Leave is said; Exit is awaited
    kEnding,   // Exit (or Fatal) came: the trainer's end, or the deadline, is awaited
    kEnded,
  };
  enum class Trainer {
    kNone,     // waits for restart_at_ (or for nothing, when no restart is wanted)
    kRunning,  // started; joined_ says whether it has joined
    kLost,     // taken for dead, not yet reaped
  };

  void OnConnected(Time now);
  void OnCoordinator(const Message& message, Time now);
  void OnExit(const Exit& exit, Time now);
  void OnTrainer(const Message& message, Time now);
  void OnLost(const std::string& evidence, const std::string& message, int32_t exit_code = 0);
  void OnReaped(int32_t exit_code, Time now);
  void OnTerminate(Time now);
  void OnTick(Time now);
  void Say(Message message);  // to the coordinator, when there is a connection
  void EndBy(int32_t code, const std::string& reason, Time deadline);
  void Finish(int32_t code, const std::string& reason);

  MemberOptions options_;
  std::vector<MemberCommand> commands_;
  Stage stage_ = Stage::kRunning;
  Time deadline_ = kNever;  // of kLeaving and kEnding
  int32_t end_code_ = 0;
  std::string end_reason_;
  bool exit_heard_ = false;

  bool connected_ = false;
  Time connect_at_ = kNever;
  Duration connect_backoff_;
  Time disconnected_since_;
  Time ping_at_ = kNever;

  Trainer trainer_ = Trainer::kNone;
  std::string member_;
  uint64_t incarnation_ = 0;
  Time started_at_;
  Time restart_at_ = kNever;
  Duration restart_backoff_;

  Generation prepared_ = 0;             // newest Prepare seen, over all incarnations
  bool asked_ = false;                  // and this incarnation was given it
  Generation delivered_ = 0;            // newest NewGeneration given to a trainer
  std::optional<MemberStatus> status_;  // the answer to `prepared_`
  std::optional<Join> join_;
  std::optional<Facts> facts_;
  std::optional<Down> down_;  // of the last dead incarnation, until the next one joins
  std::optional<Done> done_;
  std::optional<Fatal> fatal_;
  std::deque<StepRecord> recent_;  // forwarded lately
  Progress progress_;              // the other members of the last Progress
};

}  // namespace ringmaster::rendezvous
