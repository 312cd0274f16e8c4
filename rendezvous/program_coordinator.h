// SPDX-License-Identifier: Apache-2.0

// The coordinator of a job whose workers run programs of a user. It forms incarnations of the gang (see
// messages.h), finds the failure that ends one, stops what is left of it, and forms the next one in the same
// pods.
//
// A failure is accounted before the gang starts again: the report names it (Report::incident), and the next
// incarnation waits for AllowRestart. So the controller can charge it, apply the restart rules and wait for
// the back-off first. The loss of an agent needs no permission: the controller sees to the pod.
//
// A new coordinator adopts a running incarnation when all of its ranks report it. Programs do not notice a
// change of the leader.
//
// Not thread-safe. Start reading at Advance.
//
// Invariants
//  P1 Incarnations increase: a number is never used twice, and those of a higher term are above all others.
//  P2 An incarnation starts only when no agent that can be reached runs a program of an older one.
//  P3 The job is finished only when every rank of one incarnation that decides about it has ended with exit
//     code 0: all ranks, unless the policy names a role or the first worker.
//  P4 An incarnation has at least min and at most max workers, and each role completely. Ranks follow the
//     order of roles, with the workers first, then of pods and slots. Live workers (ProgramPolicy) that join
//     later come last.
//  P5 Each incarnation has at most one incident: its earliest failure, where a crash outweighs an exit code
//  of
//     the program's own, and that one an exit code that frameworks use for a lost peer. Programs that end
//     after an order to stop are consequences, and so is what fails after an agent was heard last that turns
//     out to be lost. What ends with the code of a lost peer soon after a program that starts again alone is
//     a consequence of that one. A failure that may be a consequence is published only after the gang has
//     stopped, when the end of every member is known.
//  P6 After an incident no incarnation starts before AllowRestart for it.
//  P7 A rank whose role restarts alone has at most one program at a time: its next life starts after its
//  agent
//     reported the end of the last one. No other rank is stopped for it.
//  P8 The exit code 0 of a launcher counts only when the agents have seen every rank that it started end with
//     0 (rank_accounts.h). What is missing after rank_grace is an incident.
//  P9 The first incarnation of a coordinator that adopts none starts only after all of its agents that can
//     check the network have reached each other (network_check.h).
//  P10 The loss or failure of a live worker ends an incarnation only if fewer than min are left, or if it has
//     failed too often. A launcher takes each list of workers at most once, in the order of versions.
//  P11 When all members that can be heard have done their part, the job waits up to end_limit for the others
//     before their loss counts: they may have done theirs.
//  P12 A failure counts when it is reported, even if processes of the program survive SIGKILL. Nothing starts
//     where they are, and the controller replaces that pod.
#pragma once

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
#include "rendezvous/network_check.h"
#include "rendezvous/suspicion.h"

namespace ringmaster::rendezvous {

class ProgramCoordinator final : public JobCoordinator {
 public:
  // REQUIRES: options.programs.
  explicit ProgramCoordinator(const CoordinatorOptions& options);

  void On(const CoordinatorEvent& event, Time now) override;
  std::vector<CoordinatorOutput> Take() override;
  Time next_wakeup() const override { return wakeup_; }
  const Report& report() override;
  GangPhase phase() const override;
  Generation generation() const override { return current_; }

 private:
  enum class Stage {
    kForming,   // no incarnation runs; the next one starts when it may
    kRunning,   // current_ runs
    kStopping,  // what is left of current_ is being stopped
    kEnded,
  };

  struct Peer {  // one agent
    std::string agent;
    std::string pod;
    int32_t slot = 0;
    std::string node;
    ConnectionId connection = 0;
    Time heard;                         // when its last message arrived
    Time lost_at = kNever;              // since when it is disconnected
    bool silent = false;                // connected, and nothing was heard for silence_limit
    bool stuck = false;                 // it did not stop its program in time
    bool leaving = false;               // it sent Leave
    bool released = false;              // it was sent Exit
    std::optional<ProgramState> state;  // the last one it reported
    bool fresh = false;                 // reported on this connection
    bool checks_peers = false;          // it answers CheckPeers
    Time ended_at{};                    // when its program ended by itself, by its own clock
    std::string role;                   // empty: worker
    int32_t life = 0;                   // of its program in the current incarnation; see messages.h
    int32_t restarts = 0;               // lives that failed soon, in a row
    Time life_since{};                  // when this life started
    Time restart_at = kNever;           // when the next life starts

    bool runs() const {
      return state && (state->phase == ProgramPhase::kRunning || state->phase == ProgramPhase::kStopping);
    }
    // Whether its program has failed though some process of it has not ended.
    bool failing() const { return runs() && !state->evidence.empty(); }
    // Whether the next incarnation waits for the end of its program.
    bool busy() const { return runs() && !silent && !stuck; }
    // Whether an incarnation may start here.
    bool ready() const { return connection != 0 && fresh && !silent && !leaving && !released && !runs(); }
  };

  // Messages of agents.
  void OnConnected(const AgentConnected& event, Time now);
  void OnDisconnected(ConnectionId connection, Time now);
  void OnMessage(Peer& peer, const Message& message, Time now);
  void OnState(Peer& peer, const ProgramState& state, Time now);
  void OnLeave(Peer& peer, const Leave& leave);
  void OnProgress(const Peer& peer, const Progress& progress, Time now);
  void OnPodEnded(const std::string& pod, Time now);
  void OnLimits(const SetLimits& limits, Time now);
  void OnLastArrival(Peer& peer, Time at, Time now);
  void CheckSilence(Time now);
  void CheckLost(Time now);
  void ShiftTimes(Duration gap);
  Time NextWakeup() const;

  // Decisions.
  void Advance(Time now);  // takes every step that is due
  bool CheckRunning(Time now);
  bool CheckStopping(Time now);
  bool CheckForming(Time now);
  bool Adopt(Time now);
  void StopCurrent(Duration grace, Time now);
  void CountProgress(Time now);
  // Returns whether the network is known to be good, or must not be checked.
  bool CheckNetwork(const std::vector<Peer*>& members, Time now);
  void ReportUnreachable();
  void Publish(std::vector<Peer*> members, Time now);
  // Sends what brings this agent to where it should be.
  void Correct(Peer& peer);
  void MemberLost(const Peer& peer, const std::string& evidence, const std::string& why, Time now);
  void ReleaseIdle(Peer& peer);      // sends Exit, unless its program runs
  void ErasePeer(const Peer& peer);  // invalidates the reference
  void End(GangPhase phase, const std::string& reason);

  bool InCurrent(const Peer& peer) const { return ranks_.contains(peer.agent); }
  // Whether this rank of the current incarnation has done its part.
  bool Succeeded(const Peer& peer) const;
  // Whether the program of this rank has ended, in its newest life.
  bool EndedInCurrent(const Peer& peer) const;
  // Whether the program of this rank has failed. Processes of it may be left: then nothing starts there.
  bool FailedInCurrent(const Peer& peer) const;
  // Whether the program of this rank was ordered to stop, as by an earlier coordinator.
  bool WasStopped(const Peer& peer) const;
  // Whether the end of this member is that of the job.
  bool Decides(const Member& member) const;
  // Whether the members that decide about success have all ended with exit code 0.
  bool Decided() const;
  // What contradicts the success of a launcher (P8); empty: nothing.
  std::string MissingRanks() const;
  // Whether an agent of the current incarnation that seems to be connected was not heard since this time.
  bool HasAgentNotHeardSince(Time time) const;
  // ---- failures: program_failures.cc
  struct Failure {  // of a program of the current incarnation
    std::string agent;
    FailureRecord record;
    Suspicion suspicion = Suspicion::kUnknown;
    Time at{};
    bool of_role = false;  // it is no worker
  };
  struct Loss {  // of an agent
    std::string agent;
    FailureRecord record;
    Time heard{};
  };
  Failure FailureOf(const Peer& peer) const;
  std::optional<Failure> LikeliestCause() const;
  bool CheckFailures(Time now);
  // Whether the program of a member has not ended, as far as is known.
  bool AnotherRuns() const;
  // Whether an agent was not heard since the first failure of this incarnation arrived.
  bool MayHaveLostAPeer() const;
  void BeginStop(Time now);
  // Stops the gang, and judges the failures when the end of every member is known.
  void StopUnjudged(Time now);
  void Judge();
  bool GivesUp(const Failure& cause) const;
  bool FollowsAlone(const Failure& cause) const;
  FailureRecord Explain(const Failure& cause);
  void Account(FailureRecord record, bool incident);
  void Remember(const Peer& peer, const std::string& evidence, const std::string& why);
  // REQUIRES: the agent of this member is not in peers_.
  bool ErasedAfterSuccess(const std::string& agent) const;
  bool IsUnheard(const Peer& peer) const;
  bool HasDoneItsPart(const Peer& peer) const;
  // Whether all members that can be heard have done their part, and others cannot be heard.
  bool OthersAreDone() const;
  bool AwaitsEnd() const;
  void CheckEnd(Time now);
  void Finish();
  // Whether the gang continues without this rank, whose program has failed.
  bool Spared(const Peer& peer) const;
  bool RestartsAlone(const Peer& peer) const;
  // ---- live workers: program_live_workers.cc
  bool IsLive(const Peer& peer) const { return programs_.policy.live_workers && peer.role.empty(); }
  // Lets workers that wait join the incarnation that runs.
  void AddLiveWorkers(Time now);
  // Returns whether the incarnation continues without this worker.
  bool RemoveLiveWorker(const Peer& peer);
  // Passes the members on to the launcher.
  void MembersChanged();
  bool AdoptLive(Time now);
  // What an agent gets to start its program, in its newest life.
  StartProgram StartOf(const Peer& peer) const;

  void PlanRestart(Peer& peer, Time now);
  void RestartAlone(Peer& peer, Time now);
  const ProgramRole& RoleOf(const Peer& peer) const;
  int32_t Workers() const;          // members of the current incarnation that are workers
  std::vector<Peer*> ReadyPeers();  // in the order of ranks
  // Whether all programs may have ended with 0 under an earlier coordinator, and some were not heard yet.
  bool MayHaveEnded() const;
  Time FormationDue() const;  // kNever: too few workers, or no permission
  Time GrowthDue() const;     // kNever: no worker waits to join
  void Send(const Peer& peer, Message message);
  void AddEvent(EventKind kind, std::string text) { outputs_.push_back(EventLine{kind, std::move(text)}); }
  void SetCurrent(Generation generation, std::vector<Member> members);
  void RefreshReport();

  CoordinatorOptions options_;
  ProgramOptions programs_;
  std::vector<CoordinatorOutput> outputs_;
  Report report_;
  bool report_dirty_ = true;
  bool report_announced_ = false;

  std::map<std::string, Peer> peers_;  // by agent; elements never move
  std::unordered_map<ConnectionId, Peer*> connections_;
  std::map<std::pair<std::string, int32_t>, Peer*> places_;  // by pod and slot

  Stage stage_ = Stage::kForming;
  uint32_t sequence_ = 0;
  Generation current_ = 0;
  std::vector<Member> members_;  // of the current incarnation, by rank
  std::shared_ptr<const Message> start_message_;
  int32_t version_ = 0;                             // of members_; see StartProgram
  std::unordered_map<std::string, int32_t> ranks_;  // by agent
  std::vector<Failure> failures_;                   // of its members whose agent is lost
  std::vector<Loss> losses_;                        // of its members, unless their program had failed
  std::map<std::string, ProgramState> erased_;  // of its members that were lost after their ranks' success
  bool unjudged_ = false;                       // see StopUnjudged
  // The newest failure in current_ of a program that starts again alone, when it ended, and until when it
  // explains others.
  struct AloneFailure {
    FailureRecord record;
    Time ended;
    Time until;
  };
  std::optional<AloneFailure> alone_;
  Generation accounted_ = 0;    // see AllowRestart
  Time failure_seen_ = kNever;  // when the first failure of current_ arrived
  Time incident_due_ = kNever;  // when the gathered failures are judged
  Time ranks_missed_at_{};      // since when ranks_due_ is set without interruption
  Time ranks_due_ = kNever;     // when ranks that are missing are a failure
  Time end_due_ = kNever;       // until when the end of the job waits for agents that are not heard
  Time stop_until_ = kNever;    // when agents that still run something are given up
  Duration stop_grace_{};
  bool stop_requested_ = false;

  Time started_at_ = kNever;
  Time first_state_ = kNever;  // when the first agent reported
  Time last_join_{};           // when the last agent became ready, or was lost
  Time formed_at_{};
  Time last_on_ = kNever;
  Time wakeup_ = kNever;  // when TimePassed is due
  Time silence_check_at_ = kNever;
  int64_t newest_step_ = 0;
  int64_t recorded_step_ = 0;
  bool stepped_ = false;       // the current incarnation has reported a step
  int64_t progress_mark_ = 0;  // newest_step_ when the current incarnation started
  int32_t without_progress_ = 0;

  NetworkCheck network_;
  std::string unreachable_event_;  // the text of the last kPeersUnreachable
};

}  // namespace ringmaster::rendezvous
