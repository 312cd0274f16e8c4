// SPDX-License-Identifier: Apache-2.0

// The coordinator of one job, as a pure machine: who is a member, which generation trains, from which step.
// Events in, outputs out; it knows no clock, socket or thread. A server keeps one per job (server.h).
//
// A membership change is a *round*: Prepare{g} to everyone concerned, MemberStatus{g} from each, then one
// NewGeneration{g}, or a pause when too few are left. Every decision about steps and sources is made from the
// statuses of the round, never from memory, so a coordinator that has just been started (with a higher term)
// decides as well as an old one.
//
// Invariants
//  I1 Generations rise: a round never reuses a number, and a higher term is above everything of a lower one.
//  I2 A NewGeneration lists only members that answered its own Prepare, at least min (unless it stops), at
//     most max.
//  I3 A member that was left out while it could not be reached is never taken back: it is evicted.
//  I4 While a holder of state may still come back, training does not start over from a checkpoint.
//  I5 The last holder of state does not leave before another member has the state or it is checkpointed.
//  I6 In a steady step nothing is sent.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/time.h"
#include "rendezvous/messages.h"
#include "rendezvous/recovery_plan.h"
#include "rendezvous/report.h"

namespace ringmaster::rendezvous {

using ConnectionId = uint64_t;  // never reused by the shell; 0 is none

struct CoordinatorOptions {
  std::string job;
  int32_t min = 1;
  int32_t target = 1;  // replicas: the first formation waits for so many
  int32_t max = 1;
  int32_t slots = 1;  // members of a pod; min, target and max count members
  uint32_t term = 0;  // rises with every coordinator of this job
  // The job has run under an earlier coordinator whose members may still live (and train on): they get
  // `holder_grace` to connect before the first generation, from the first of them on: what tells agents where
  // the new coordinator is may be late for all of them. With what that coordinator had heard.
  bool resumed = false;
  int64_t known_step = 0;
  int64_t known_checkpoint = -1;

  Duration gather_window = milliseconds(2);   // deaths and leaves so close together are one change (20 ms on
                                              // a network)
  Duration growth_window = milliseconds(50);  // joins so close together are one change
  Duration last_call = milliseconds(500);     // first formation below target: since the last join
  Duration status_deadline = seconds(10);     // Prepare -> MemberStatus of a member
  Duration candidate_deadline = seconds(2);   // the same of a joiner, which others must not wait for
  Duration boundary_deadline = seconds(30);   // a boundary Prepare not answered becomes an abort
  // The others go on without an agent that was not heard for so long, or for two steps, while no step was
  // committed (one that was needed everybody); only after silence_limit, which bounds it, is it also told to
  // be silent, which costs it its pod.
  Duration quiet_limit = seconds(3);
  Duration silence_limit = seconds(3);  // at least quiet_limit
  Duration holder_grace = seconds(3);   // see I4
};

// ---- events
struct AgentConnected {  // secret checked, job found
  ConnectionId connection = 0;
  Hello hello;
};
struct AgentGone {
  ConnectionId connection = 0;
};
struct MessageFrom {
  ConnectionId connection = 0;
  Message message;
};
struct SetLimits {
  int32_t min = 1;
  int32_t target = 1;
  int32_t max = 1;
};
struct RequestStop {};  // suspend, Ctrl-C: checkpoint, then end
struct TimePassed {};
using CoordinatorEvent =
    std::variant<AgentConnected, AgentGone, MessageFrom, SetLimits, RequestStop, TimePassed>;

// ---- outputs
struct SendTo {
  ConnectionId connection = 0;
  Message message;
};
struct CloseConnection {
  ConnectionId connection = 0;
};
struct ProgressOut {  // records not seen before, steps rising; may be empty when only the rest changed
  Progress progress;
};
struct ReportChanged {};
struct EventLine {  // for people and events.jsonl
  std::string text;
  bool device_trouble = false;  // of a worker's GPU: an Event of its own in a cluster
};
using CoordinatorOutput = std::variant<SendTo, CloseConnection, ProgressOut, ReportChanged, EventLine>;

class Coordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options);

  void On(const CoordinatorEvent& event, Time now);
  std::vector<CoordinatorOutput> Take();
  // When TimePassed is due.
  Time next_wakeup() const;
  const Report& report() const { return report_; }

 private:
  struct Peer {  // one agent
    std::string agent;
    std::string pod;
    int32_t slot = 0;
    std::string node;
    ConnectionId connection = 0;
    Time heard;
    Time lost_at = kNever;  // no connection, or quiet, since then
    bool quiet = false;     // connected, not heard, and left out
    bool silent = false;    // and for so long that it is told
    bool loss_counted = false;
    bool leaving = false;
    std::string member;  // its trainer; empty: none has joined
    std::string address;
    std::optional<Facts> facts;
    uint64_t join_order = 0;
    bool may_hold_state = false;
    std::optional<MemberStatus> outvoted;  // the state that it reported and that was found corrupt
    std::string failed_member;             // the last that went down
    int32_t failed_starts = 0;             // in a row, before they joined

    // There, heard of, and with nothing lost on the way to it.
    bool usable() const { return connection != 0 && lost_at == kNever && !member.empty(); }
  };
  struct Answer {
    Peer* peer = nullptr;
    Time deadline = kNever;
    std::optional<MemberStatus> status;
  };
  struct Round {
    Generation generation = 0;
    Urgency urgency = Urgency::kAbort;
    bool limited = false;  // made while members train: joiners only up to max
    bool failure = false;  // a member was lost
    std::vector<Answer> answers;
  };

  // coordinator.cc: agents and their messages
  void OnConnected(const AgentConnected& event, Time now);
  void OnGone(ConnectionId connection, Time now);
  void OnMessage(Peer& peer, const Message& message, Time now);
  void OnJoin(Peer& peer, const Join& join, Time now);
  void OnFacts(Peer& peer, const Facts& facts);
  void OnStatus(Peer& peer, const MemberStatus& status);
  void OnDown(Peer& peer, const Down& down, Time now);
  void OnLeave(Peer& peer, const Leave& leave, Time now);
  void OnProgress(Peer& peer, const Progress& progress, Time now);
  void OnDone(Peer& peer, const Done& done, Time now);
  void CheckSilence(Time now);
  Duration QuietLimit() const;
  void Heard(Peer& peer, Time now);
  void Unreachable(Peer& peer, Time now);  // its member must be taken for dead soon
  void MemberLost(const Peer& peer, bool was_member, Time now);
  void CountFailure(Peer& peer, FailureRecord record);
  void Forget(Peer& peer);                               // erases it; the reference is dead afterwards
  void ThrowOut(Peer& peer, const std::string& reason);  // Evict, and never take it back

  // round.cc: from Prepare to NewGeneration
  void Advance(Time now);
  void StartRound(Urgency urgency, Time now);
  void AddToRound(Peer& peer, Time now);
  void DropFromRound(const Peer& peer, bool was_member);
  void OnRoundDeadline(Time now);
  void CompleteRound(Time now);
  bool AllAsked(const Round& round) const;  // who can be reached
  void Regroup(const Round& round, const RecoveryPlan& plan, Time now);
  static void StandTogether(std::vector<Peer*>& peers);
  void Publish(const Round& round, const RecoveryPlan& plan, std::vector<Peer*> members, bool stop, Time now);
  void Release(Peer& peer);  // Exit for one that left by plan
  void ReleaseLeavers();
  void ExitAll(int32_t code, const std::string& reason);
  void End(GangPhase phase, int32_t code, const std::string& reason);
  void CountWithoutProgress();

  bool InCurrent(const Peer& peer) const;
  bool CurrentBroken() const;  // a member of the current generation is not there any more
  bool WantsBoundary() const;  // join, leave, stop or shrink to be done
  // `fresh`: a source is a member of the current generation.
  std::optional<Time> AwaitHoldersUntil(const RecoveryPlan& plan, bool fresh, Time now) const;
  Time FormationDue() const;  // kNever: too few are there
  Time HoldersDue() const;    // when those of an earlier coordinator have had their time to connect
  Generation NextGeneration();
  void Send(const Peer& peer, Message message);
  void Say(std::string text) { outputs_.push_back(EventLine{std::move(text)}); }
  void RefreshReport();

  CoordinatorOptions options_;
  std::vector<CoordinatorOutput> outputs_;
  Report report_;
  bool report_dirty_ = true;

  std::map<std::string, Peer> peers_;  // by agent; addresses are stable
  std::map<ConnectionId, Peer*> connections_;
  std::set<std::string> dead_;  // ids of members left out: I3
  uint64_t joins_ = 0;

  uint32_t sequence_ = 0;
  NewGeneration current_;  // last published; generation 0: none
  bool active_ = false;    // and it trains, as far as we know
  std::optional<Round> round_;
  Time abort_at_ = kNever;
  Time boundary_at_ = kNever;
  Time first_join_ = kNever;
  Time last_join_;
  Time retry_at_;                // formation is not tried before (I4)
  bool survivors_hold_ = false;  // paused: members stand still with state
  bool stop_requested_ = false;
  bool ended_ = false;
  int32_t exit_code_ = 0;  // for agents that come after the end
  std::string exit_reason_;

  Time started_at_ = kNever;
  Time last_on_ = kNever;
  Time silence_check_at_ = kNever;
  int64_t newest_step_ = 0;       // committed, heard of by any way
  int64_t recorded_step_ = 0;     // newest record passed on
  Time stepped_at_;               // when newest_step_ was heard to rise
  Duration step_time_{};          // what that step took; zero: none was heard of yet
  int64_t progress_mark_ = 0;     // newest_step_ when the current generation was published
  int32_t lost_generations_ = 0;  // in a row without a commit
};

}  // namespace ringmaster::rendezvous
