// SPDX-License-Identifier: Apache-2.0

// The coordinator of one job decides who is a member, which generation trains, and from which step it starts.
//
// A Coordinator is a pure state machine: On() takes an event and the time, Take() returns the outputs. It has
// no clock, socket or thread. Server (server.h) runs one per job and performs the outputs.
//
// A membership change sends Prepare{g} to all participants, collects MemberStatus{g} from each, and publishes
// one NewGeneration{g}, or pauses when too few members are left. Start reading at Coordinator::Advance
// (membership_change.cc). Every decision about steps and sources uses only the statuses of the current
// change. A newly started coordinator with a higher term therefore decides as well as its predecessor.
//
// Not thread-safe.
//
// Invariants
//  I1 Generations increase: a membership change never reuses a number, and any generation of a higher term is
//     above all generations of a lower term.
//  I2 A NewGeneration lists only members that answered its own Prepare: at least min (unless it stops), at
//     most max.
//  I3 A member that was left out because it was unreachable is never readmitted: it is evicted.
//  I4 While a holder of the state may still reconnect, training does not start over from a checkpoint.
//  I5 The last holder of the state does not leave before another member has the state or a checkpoint has it.
//  I6 The coordinator sends nothing during steady training.
//  I7 All members of a generation have the same fingerprints. Holders of the state are not refused in favor
//  of
//     newcomers.
//  I8 Training does not start over from a state older than the newest checkpoint known to be published.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/time.h"
#include "rendezvous/job_coordinator.h"
#include "rendezvous/messages.h"
#include "rendezvous/reachability.h"
#include "rendezvous/recent_ids.h"
#include "rendezvous/recovery_plan.h"
#include "rendezvous/straggler_rule.h"

namespace ringmaster::rendezvous {

class Coordinator final : public JobCoordinator {
 public:
  explicit Coordinator(const CoordinatorOptions& options);

  void On(const CoordinatorEvent& event, Time now) override;
  std::vector<CoordinatorOutput> Take() override;
  Time next_wakeup() const override;
  const Report& report() override;
  GangPhase phase() const override;
  Generation generation() const override { return current_.generation; }

 private:
  struct Peer {  // one agent
    std::string agent;
    std::string pod;
    int32_t slot = 0;
    std::string node;
    ConnectionId connection = 0;
    Time heard;                    // when its last message arrived
    Time lost_at = kNever;         // since when it is disconnected or unresponsive
    bool awaited = false;          // disconnected, but steps may yet show that its member lives
    bool unresponsive = false;     // connected, but silent, and therefore left out
    bool reported_silent = false;  // silent beyond silence_limit: the report names it
    bool loss_counted = false;     // the loss of its member is in worker_failures
    bool leaving = false;          // it sent Leave
    std::string member;            // id of its trainer; empty: none has joined
    std::string address;
    Fingerprints fingerprints;
    std::optional<Fatal> fatal;  // its trainer cannot start; not judged yet
    std::optional<Facts> facts;
    uint64_t join_order = 0;
    bool may_hold_state = false;
    std::optional<MemberStatus> outvoted;  // the state it reported that the majority contradicted
    std::string failed_member;             // the last of its members that failed
    std::string died_member;               // whose death its agent has reported, which an eviction is not
    // Consecutive trainers that died before they joined, or were refused, while no generation trained.
    int32_t failed_starts = 0;
    std::optional<size_t> counted;  // index into usable_

    // Connected and responsive, with a joined trainer, and no message to it was lost.
    bool usable() const { return connection != 0 && lost_at == kNever && !member.empty(); }
  };
  struct Participant {
    Peer* peer = nullptr;
    Time deadline = kNever;
    std::optional<MemberStatus> status;
  };
  struct MembershipChange {
    Generation generation = 0;
    Urgency urgency = Urgency::kAbort;
    bool limited = false;  // started while a generation trained: admits joining workers only up to max
    bool failure = false;  // a member was lost
    bool find_checkpoint = false;  // the statuses say which checkpoint each participant could load
    std::shared_ptr<const Message> prepare;
    Time next_deadline = kNever;  // no participant without a status has an earlier one
    std::vector<Participant> participants;
  };

  // coordinator.cc: connections and messages of agents
  void OnConnected(const AgentConnected& event, Time now);
  void OnDisconnected(ConnectionId connection, Time now);
  void OnMessage(Peer& peer, const Message& message, Time now);
  void OnJoin(Peer& peer, const Join& join, Time now);
  void CountOnFrom(Generation newest, Time now);
  void OnFacts(Peer& peer, const Facts& facts);
  void OnStatus(Peer& peer, const MemberStatus& status);
  void OnDown(Peer& peer, const Down& down, Time now);
  void OnPodEnded(const std::string& pod, Time now);
  void OnLeave(Peer& peer, const Leave& leave, Time now);
  void OnProgress(Peer& peer, const Progress& progress, Time now);
  void LearnStepTime(const StepRecord& record);
  Duration WithStep(Duration deadline) const;
  void OnDone(Peer& peer, const Done& done, Time now);
  void OnBusy(const Peer& peer, const BusyTime& busy);
  void ShiftTimes(Duration gap);
  void CheckSilence(Time now);
  void OnLastArrival(Peer& peer, Time at, Time now);
  void CheckAwaited(Time now);
  Duration UnresponsiveLimit() const;
  void MarkHeard(Peer& peer, Time now);
  void MarkUnreachable(Peer& peer, Time now);  // unless it reconnects, its member is left out
  void MemberLost(const Peer& peer, bool was_member, Time now);
  void CountFailure(Peer& peer, FailureRecord record);
  // The same; if the Down of `member` was counted already, it only adds what is known now.
  void RecordFailure(Peer& peer, const std::string& member, FailureRecord record);
  void ErasePeer(Peer& peer);  // invalidates the reference
  // REQUIRES: called after each change of what usable(), InCurrent() or `leaving` depend on.
  void Count(Peer& peer);
  void SetCurrent(NewGeneration current);
  // Sends Evict; I3.
  void EvictPeer(Peer& peer, const std::string& member, const std::string& reason, bool refused = false);

  // coordinator_end.cc: from the last step to the end of the programs
  bool AdoptsEnd() const;
  void AdoptEnd(Peer& peer, const Done& done, Time now);
  void AwaitPrograms(const Done& done, Time now);
  void OnMessageAtEnd(Peer& peer, const Message& message, Time now);
  void OnProgramEnded(Peer& peer, const Down& down, Time now);
  void StartProgramsAgain(Time now);
  void CheckPrograms(Time now);

  // admission.cc: which workers may take part
  static std::string PlaceOf(const Peer& peer);  // for people: its pod and node
  bool CompareWorkers(MembershipChange* change, Time now);
  void RefuseDifferent(Peer& peer, const Fingerprints& chosen);
  void Refuse(Peer& peer, const std::string& member, int32_t exit_code, const std::string& why);
  bool AwaitMoreWorkers(size_t present, const std::string& why, Time now);
  void OnOperationFailed(Peer& peer, const OperationFailed& failed, Time now);
  void CheckOperation(Time now);
  bool DivergesAgain(const OperationFailed& failed);
  std::string WhoDiffers(const MembershipChange& change, const std::vector<size_t>& differ) const;
  void RefuseUnreachable(const std::vector<int32_t>& ranks, const std::string& why);
  void OnFatal(Peer& peer, const Fatal& fatal, Time now);
  void JudgeFatals(Time now);
  bool ChooseLoader(const MembershipChange& change, std::vector<size_t>* staying, Time now);
  bool AwaitSearch(const MembershipChange& change, const std::vector<size_t>& staying, Time now);

  // membership_change.cc: from Prepare to NewGeneration
  void Advance(Time now);                       // takes every step that is due
  void StartChange(Urgency urgency, Time now);  // replaces a change in progress
  std::shared_ptr<const Message> MakePrepare(const MembershipChange& change) const;
  void AddToChange(Peer& peer, Time now);  // sends Prepare
  void DropFromChange(const Peer& peer, bool was_member);
  void OnChangeDeadline(Time now);
  void CompleteChange(Time now);                              // plans the recovery from the statuses
  bool AllParticipate(const MembershipChange& change) const;  // every usable peer
  void ChooseMembers(const MembershipChange& change, const RecoveryPlan& plan, Time now);
  void SortByLocality(std::vector<Peer*>& peers) const;
  void Publish(const MembershipChange& change, const RecoveryPlan& plan, std::vector<Peer*> members,
               bool stop, Time now, const Peer* loader = nullptr);
  void CountLostSteps();
  void ReleasePeer(Peer& peer);  // sends Exit to a peer that left by plan
  void ReleaseLeavers();
  void End(GangPhase phase, int32_t code, const std::string& reason);
  void Fail(const std::string& reason);  // no worker in particular is the reason
  // While a generation trains, a worker that cannot take part is no failure of the job, however long a step
  // takes.
  void CountFailedStart(Peer& peer) { peer.failed_starts += active_ ? 0 : 1; }
  void CountWithoutProgress();  // counts a lost generation for failures_without_progress

  bool InCurrent(const Peer& peer) const;
  bool CurrentBroken() const;  // a member of the current generation is lost
  bool AwaitsMember() const;   // a member of the current generation is disconnected and may return
  bool WantsBoundary() const;  // a join, leave, stop or shrink is pending
  // I4: until when to wait for unreachable holders. `fresh`: a source is a member of the current generation.
  std::optional<Time> AwaitHoldersUntil(const RecoveryPlan& plan, bool fresh, Time now) const;
  Time FormationDue() const;  // kNever: too few workers are connected
  Time HoldersDue() const;    // when the grace for members of an earlier coordinator ends
  Generation NextGeneration();
  void Send(const Peer& peer, Message message);
  void Send(const Peer& peer, const std::shared_ptr<const Message>& message);
  void AddEvent(EventKind kind, std::string text, std::string pod = {}) {
    outputs_.push_back(EventLine{kind, std::move(text), std::move(pod)});
  }
  void AddFormedEvent(Time now);  // current_ was published
  void RefreshReport();
  // Publishes what the members have reported about a window of steps, and marks stragglers.
  void CloseBusyWindow(Time now);

  CoordinatorOptions options_;
  std::vector<CoordinatorOutput> outputs_;
  Report report_;
  bool report_dirty_ = true;
  bool report_announced_ = false;

  std::map<std::string, Peer> peers_;  // by agent; elements never move
  std::unordered_map<ConnectionId, Peer*> connections_;
  std::map<std::pair<std::string, int32_t>, Peer*> places_;  // by pod and slot
  // Usable peers by 2 * in the current generation + leaving: 4,096 joins must not cost a count each.
  std::array<int32_t, 4> usable_{};
  RecentIds removed_;  // members that were left out (I3)
  uint64_t joins_ = 0;

  uint32_t sequence_ = 0;
  NewGeneration current_;  // the last published one; generation 0: none; changed by SetCurrent
  std::shared_ptr<const Message> current_message_;
  std::unordered_map<std::string, size_t> ranks_;  // of its members, by id
  Fingerprints fingerprints_;                      // of its members
  bool active_ = false;                            // current_ trains, as far as the coordinator knows
  std::optional<MembershipChange> change_;
  BusyWindow busy_;           // of the members of current_
  StragglerRule stragglers_;  // the same
  Time lost_since_ = kNever;  // since when training waits for a generation without a lost member
  Time abort_at_ = kNever;
  Time awaited_check_at_ = kNever;
  struct FailedOperation {
    Peer* peer = nullptr;
    Time due;  // then the members try again
    OperationFailed report;
    Reachability reachability;
  };
  std::optional<FailedOperation> failed_operation_;  // the first one of the current generation
  struct {
    std::string text;  // what the members found; empty: their states have not differed
    int64_t step = 0;
    int32_t count = 0;  // consecutive ones, with few steps between them
  } diverged_;
  Time boundary_at_ = kNever;
  Time first_join_ = kNever;
  Time last_join_;
  Time retry_at_;                   // no formation before this time (I4)
  bool survivors_hold_ = false;     // paused: members hold the state in memory and wait
  bool find_checkpoint_ = false;    // no holder of the state answered: ask which checkpoints could be loaded
  Time undecided_since_ = kNever;   // since when AwaitMoreWorkers waits
  Time searched_since_ = kNever;    // since when AwaitSearch waits
  std::string damaged_checkpoint_;  // of the newest event about one
  bool may_have_fatals_ = false;    // some peer may have a fatal
  Time first_fatal_ = kNever;       // when the oldest fatal that is not judged arrived
  Time fatal_due_ = kNever;         // when JudgeFatals is due
  // All steps are done, and the programs of the members continue after them.
  struct Ending {
    Done done;
    bool adopted = false;                 // an earlier coordinator began it, so more members may report
    Time due;                             // not before
    std::map<std::string, bool> running;  // by member: whether its program has not ended
  };
  std::optional<Ending> ending_;
  bool programs_started_again_ = false;  // a program failed after the last step
  bool stop_requested_ = false;
  bool ended_ = false;
  int32_t exit_code_ = 0;  // for agents that connect after the end
  std::string exit_reason_;

  Time started_at_ = kNever;
  Time woke_at_ = kNever;  // when this process was last continued after a suspension
  Time last_on_ = kNever;
  Time silence_check_at_ = kNever;
  int64_t newest_step_ = 0;       // newest committed step, from records, statuses or Done
  int64_t recorded_step_ = 0;     // step of the newest record in a ProgressOut
  Time stepped_at_;               // when newest_step_ last increased
  Duration step_time_{};          // duration of that step; zero: not known yet
  Duration last_step_{};          // the same, without a limit of seconds
  Duration usual_step_{};         // the shorter one of the last two
  int64_t progress_mark_ = 0;     // newest_step_ when the current generation was published
  int32_t lost_generations_ = 0;  // consecutive generations lost without a commit
};

}  // namespace ringmaster::rendezvous
