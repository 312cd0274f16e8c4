// SPDX-License-Identifier: Apache-2.0

// What follows when a program fails or an agent is lost: which failure is the cause, when that is published,
// which programs start again alone, and how long the end of a job waits for agents that are not heard.
#include <algorithm>
#include <utility>

#include "rendezvous/program_coordinator.h"
#include "rendezvous/suspicion.h"

namespace ringmaster::rendezvous {
namespace {

// For how long the failure of a peer may be a consequence of a program that has started again alone. A chief
// notices the loss of a parameter server at once, or when it uses the new one, which has no variables. That
// one imports its framework first.
constexpr Duration kAloneBlame = seconds(60);

}  // namespace

// ---- programs that the gang does not stop for

bool ProgramCoordinator::Spared(const Peer& peer) const {
  return RoleOf(peer).restart == ProgramRestart::kNever || RestartsAlone(peer);
}

bool ProgramCoordinator::RestartsAlone(const Peer& peer) const {
  const ProgramPolicy& policy = programs_.policy;
  if (RoleOf(peer).restart != ProgramRestart::kAlone) return false;
  if (std::binary_search(policy.ruled_exit_codes.begin(), policy.ruled_exit_codes.end(),
                         peer.state->exit_code))
    return false;
  return peer.restart_at != kNever || peer.restarts < policy.max_restarts;
}

void ProgramCoordinator::PlanRestart(Peer& peer, Time now) {
  const ProgramPolicy& policy = programs_.policy;
  if (now - std::max(peer.life_since, formed_at_) >= programs_.stable_after) peer.restarts = 0;
  Duration wait = policy.backoff_initial;
  for (int32_t i = 0; i < peer.restarts && wait < policy.backoff_max; ++i) wait *= 2;
  wait = std::min(wait, policy.backoff_max);
  ++peer.restarts;
  peer.restart_at = now + wait;
  FailureRecord record{peer.pod, peer.state->evidence, peer.state->exit_code, peer.state->message};
  AddEvent(EventKind::kWorkerFailed,
           DescribeEnd(record) + "; it starts again alone in " + std::to_string(ToMs(wait)) + " ms");
  ++report_.worker_failures;
  report_.last_failure = record;
  report_dirty_ = true;
  alone_ = {std::move(record), peer.ended_at, peer.restart_at + kAloneBlame};
  if (IsLive(peer)) MembersChanged();
}

void ProgramCoordinator::RestartAlone(Peer& peer, Time now) {
  peer.restart_at = kNever;
  peer.life_since = now;
  ++peer.life;
  if (IsLive(peer)) {
    // The launcher takes it for another host: it does not use one again that has failed.
    Member& member = members_[static_cast<size_t>(ranks_.at(peer.agent))];
    member = {peer.agent, peer.pod, peer.state->address, "", peer.state->key, version_ + 1};
    MembersChanged();
  }
  StartProgram start = StartOf(peer);
  // As far as is known, like Publish.
  peer.state->phase = ProgramPhase::kRunning;
  peer.state->evidence.clear();
  peer.state->life = peer.life;
  peer.state->version = start.version;
  Send(peer, std::move(start));
  report_dirty_ = true;
}

// ---- the cause

ProgramCoordinator::Failure ProgramCoordinator::FailureOf(const Peer& peer) const {
  const ProgramState& state = *peer.state;
  return {peer.agent,
          {peer.pod, state.evidence, state.exit_code, state.message},
          SuspicionOf(state),
          peer.ended_at,
          !peer.role.empty()};
}

std::optional<ProgramCoordinator::Failure> ProgramCoordinator::LikeliestCause() const {
  std::vector<Failure> all = failures_;
  for (const Member& member : members_) {
    const auto it = peers_.find(member.id);
    if (it == peers_.end()) continue;
    const Peer& peer = it->second;
    if (FailedInCurrent(peer) && !Spared(peer)) all.push_back(FailureOf(peer));
  }
  const auto order = [](const Failure& f) { return std::pair(f.suspicion, f.at); };
  const auto first = std::min_element(
      all.begin(), all.end(), [&](const Failure& a, const Failure& b) { return order(a) < order(b); });
  return first == all.end() ? std::nullopt : std::optional(*first);
}

// Called while the gang runs and a program has failed. Returns true if the stage changed.
bool ProgramCoordinator::CheckFailures(Time now) {
  if (failure_seen_ == kNever) failure_seen_ = now;
  ranks_due_ = kNever;  // the failure explains why ranks are missing
  const Failure cause = LikeliestCause().value();
  if (cause.suspicion != Suspicion::kRoot) {
    const bool unexplained = cause.suspicion == Suspicion::kConsequence && !FollowsAlone(cause);
    // The ranks of a launcher fail before it does, and do not end by themselves otherwise.
    const bool more = unexplained && cause.record.evidence != "launcher" && AnotherRuns();
    incident_due_ = failure_seen_ + (more ? programs_.consequence_window : programs_.gather_window);
    if (now < incident_due_) return false;
    if (unexplained || MayHaveLostAPeer()) {
      StopUnjudged(now);
      return true;
    }
  }
  BeginStop(now);
  Account(Explain(cause), true);
  return true;
}

bool ProgramCoordinator::AnotherRuns() const {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    const auto it = peers_.find(member.id);
    return it != peers_.end() && !EndedInCurrent(it->second) && !FailedInCurrent(it->second);
  });
}

// Survivors of a node that is switched off may fail before its agent counts as lost. An agent that was heard
// since the failure, by a ping or a report, was not lost before it.
bool ProgramCoordinator::MayHaveLostAPeer() const {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    const auto it = peers_.find(member.id);
    if (it == peers_.end() || it->second.silent || EndedInCurrent(it->second) || FailedInCurrent(it->second))
      return false;
    return it->second.connection == 0 || it->second.heard <= failure_seen_;
  });
}

void ProgramCoordinator::CountProgress(Time now) {
  if (newest_step_ > progress_mark_ || now - formed_at_ >= programs_.stable_after) without_progress_ = 0;
}

void ProgramCoordinator::BeginStop(Time now) {
  CountProgress(now);
  if (newest_step_ <= progress_mark_ && now - formed_at_ < programs_.stable_after) ++without_progress_;
  StopCurrent(std::min(programs_.failure_grace, programs_.stop_grace), now);
}

void ProgramCoordinator::StopUnjudged(Time now) {
  BeginStop(now);
  unjudged_ = true;
}

// Nothing of the incarnation runs any more, except in agents that are lost or do not obey: no better
// explanation will come.
void ProgramCoordinator::Judge() {
  if (Decided() && (!programs_.policy.counts_ranks || MissingRanks().empty())) {
    Finish();
    return;
  }
  const std::optional<Failure> cause = LikeliestCause();
  const auto first = std::min_element(losses_.begin(), losses_.end(),
                                      [](const Loss& a, const Loss& b) { return a.heard < b.heard; });
  // What fails after an agent was heard last is a consequence of its loss, unless it certainly is none.
  const bool lost = first != losses_.end() &&
                    (!cause || (cause->suspicion != Suspicion::kRoot && first->heard <= failure_seen_));
  if (lost)
    Account(first->record, false);
  else if (cause)
    Account(Explain(*cause), true);
}

// A launcher gives up because of its workers.
bool ProgramCoordinator::GivesUp(const Failure& cause) const {
  return alone_ && programs_.policy.live_workers && cause.of_role &&
         cause.at - alone_->ended <= programs_.failure_grace;
}

// Whether it failed because of a program that starts again alone.
bool ProgramCoordinator::FollowsAlone(const Failure& cause) const {
  return GivesUp(cause) ||
         (alone_ && failure_seen_ < alone_->until && cause.suspicion == Suspicion::kConsequence);
}

// Returns what the report says about this cause.
FailureRecord ProgramCoordinator::Explain(const Failure& cause) {
  if (GivesUp(cause)) return alone_->record;
  if (!FollowsAlone(cause)) return cause.record;
  // The report names both: what failed first, and what stops the gang for want of it.
  FailureRecord first = std::exchange(alone_, {})->record;
  first.message += (first.message.empty() ? "then " : "; then ") + DescribeEnd(cause.record);
  return first;
}

// `incident`: a program has failed, as opposed to its agent, and the controller must account that.
void ProgramCoordinator::Account(FailureRecord record, bool incident) {
  AddEvent(EventKind::kWorkerFailed, DescribeEnd(record));
  ++report_.worker_failures;
  report_.last_failure = record;
  if (incident) report_.incident = Incident{current_, std::move(record)};
  report_dirty_ = true;
}

// ---- lost agents

// A rank that has done its part, or that the others can spare, is not needed any more.
void ProgramCoordinator::MemberLost(const Peer& peer, const std::string& evidence, const std::string& why,
                                    Time now) {
  last_join_ = now;
  const bool judging = stage_ == Stage::kStopping && unjudged_;
  if ((stage_ != Stage::kRunning && !judging) || !InCurrent(peer)) return;
  if (Succeeded(peer)) {
    // What its ranks did still counts.
    if (programs_.policy.counts_ranks) erased_.emplace(peer.agent, *peer.state);
    return;
  }
  if (RoleOf(peer).restart == ProgramRestart::kNever) {
    if (!judging)
      AddEvent(EventKind::kWorkerFailed, peer.pod + " is lost (" + why + "): the others run without it");
    return;
  }
  if (judging) return Remember(peer, evidence, why);
  if (peer.leaving && RemoveLiveWorker(peer)) return;
  if (peer.leaving) {
    AddEvent(EventKind::kOther, "the programs get SIGTERM: a worker has left");
    StopCurrent(programs_.stop_grace, now);
    return;
  }
  if (RemoveLiveWorker(peer)) {
    AddEvent(EventKind::kWorkerFailed,
             peer.pod + " is lost (" + why + "): the launcher continues without it");
    ++report_.worker_failures;
    report_.last_failure = FailureRecord{peer.pod, evidence, 0, why};
    return;
  }
  if (programs_.policy.counts_ranks && Decided() && HasDoneItsPart(peer)) {
    erased_.emplace(peer.agent, *peer.state);
    AddEvent(EventKind::kOther, peer.pod + " is lost (" + why + ") after all of its ranks have succeeded");
    return;
  }
  Remember(peer, evidence, why);
  // What has begun to finish may be found to be finished when all have stopped.
  const bool finishing = std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    const auto it = peers_.find(member.id);
    return it != peers_.end() && HasDoneItsPart(it->second);
  });
  if (failure_seen_ == kNever && failures_.empty() && !finishing) {
    BeginStop(now);
    Account(losses_.back().record, false);
    return;
  }
  if (failure_seen_ == kNever) failure_seen_ = now;
  StopUnjudged(now);
}

// A program that failed before its agent was lost is the better explanation.
void ProgramCoordinator::Remember(const Peer& peer, const std::string& evidence, const std::string& why) {
  if (FailedInCurrent(peer))
    failures_.push_back(FailureOf(peer));
  else
    losses_.push_back({peer.agent, {peer.pod, evidence, 0, why}, peer.heard});
}

bool ProgramCoordinator::ErasedAfterSuccess(const std::string& agent) const {
  const auto is_this = [&](const auto& of) { return of.agent == agent; };
  const auto it = erased_.find(agent);
  if (it != erased_.end() && it->second.phase != ProgramPhase::kEnded) return false;
  return std::none_of(losses_.begin(), losses_.end(), is_this) &&
         std::none_of(failures_.begin(), failures_.end(), is_this);
}

// ---- the end of a job

bool ProgramCoordinator::IsUnheard(const Peer& peer) const {
  return peer.connection == 0 || peer.silent || last_on_ - peer.heard >= options_.silence_limit / 2;
}

bool ProgramCoordinator::HasDoneItsPart(const Peer& peer) const {
  if (Succeeded(peer)) return true;
  // The pod of a worker does not end before its launcher, only its ranks do.
  return programs_.policy.counts_ranks && peer.state && !peer.state->ranks.empty() &&
         peer.state->open_ranks == 0;
}

bool ProgramCoordinator::OthersAreDone() const {
  if (stage_ != Stage::kRunning || failure_seen_ != kNever) return false;
  const ProgramPolicy& policy = programs_.policy;
  // The launcher has done without the ranks of such a worker.
  if (policy.live_workers && Workers() > options_.min) return false;
  const bool launched = policy.counts_ranks && Decided();  // a rank that is missing has its own limit
  bool any_done = false;
  bool any_unheard = false;
  for (const Member& member : members_) {
    const auto it = peers_.find(member.id);
    if (it == peers_.end()) continue;
    const Peer& peer = it->second;
    const bool launcher = policy.counts_ranks && Decides(member);
    if (launcher ? Succeeded(peer) : HasDoneItsPart(peer)) {
      any_done = true;
    } else if (IsUnheard(peer)) {
      any_unheard = true;
    } else if (!launched && (member.role.empty() || Decides(member))) {
      return false;
    }
  }
  return any_done && any_unheard;
}

// Nothing else of the job runs, so that waiting costs nothing, and starting again would repeat the whole job.
bool ProgramCoordinator::AwaitsEnd() const { return last_on_ < end_due_ && OthersAreDone(); }

void ProgramCoordinator::CheckEnd(Time now) {
  if (!OthersAreDone())
    end_due_ = kNever;
  else if (end_due_ == kNever)
    end_due_ = now + programs_.end_limit;
}

void ProgramCoordinator::Finish() {
  const ProgramPolicy& policy = programs_.policy;
  const char* who = policy.decider == ProgramPolicy::Decider::kAll     ? "every program"
                    : policy.decider == ProgramPolicy::Decider::kFirst ? "rank 0"
                                                                       : policy.decider_role.c_str();
  End(GangPhase::kFinished, std::string(who) + " has ended with exit code 0");
}

}  // namespace ringmaster::rendezvous
