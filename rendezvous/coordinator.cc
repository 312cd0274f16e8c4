// SPDX-License-Identifier: Apache-2.0

// Handles connections and messages of agents and records what they mean for the membership.
// membership_change.cc acts on it.
#include "rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringmaster::rendezvous {
namespace {

// An agent speaks for its own trainers only.
bool IsOwn(const std::string& agent, const std::string& member) { return member.starts_with(agent + "."); }

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options) : options_(options) {
  CHECK(options_.min >= 1 && options_.min <= options_.max, "min {} max {}", options_.min, options_.max);
  CHECK(options_.unresponsive_limit <= options_.silence_limit, "unresponsive_limit above silence_limit");
  newest_step_ = recorded_step_ = options_.known_step;
  report_.term = options_.term;
  report_.step = options_.known_step;
  report_.checkpoint_step = options_.known_checkpoint;
}

std::vector<CoordinatorOutput> Coordinator::Take() { return std::exchange(outputs_, {}); }

void Coordinator::On(const CoordinatorEvent& event, Time now) {
  if (started_at_ == kNever) {
    started_at_ = last_on_ = last_join_ = retry_at_ = stepped_at_ = now;
    silence_check_at_ = now + options_.unresponsive_limit / 8;
  }
  // The server calls at least at every silence check. A longer gap means that this process was suspended: the
  // agents were not silent, so the gap does not count.
  if (const Duration gap = now - last_on_; gap > options_.unresponsive_limit / 2) {
    ShiftTimes(gap);
    woke_at_ = now;
  }
  last_on_ = now;

  if (const auto* connected = std::get_if<AgentConnected>(&event)) {
    OnConnected(*connected, now);
  } else if (const auto* gone = std::get_if<AgentDisconnected>(&event)) {
    OnDisconnected(gone->connection, now);
  } else if (const auto* from = std::get_if<MessageFrom>(&event)) {
    if (const auto it = connections_.find(from->connection); it != connections_.end()) {
      const bool known = !it->second->unresponsive;
      MarkHeard(*it->second, now);
      // Most messages are pings. What depends on the time is checked at next_wakeup.
      if (const auto* ping = std::get_if<Ping>(&from->message); known && ping != nullptr) {
        if (ping->busy) OnBusy(*it->second, *ping->busy);
        return;
      }
      OnMessage(*it->second, from->message, now);
    }
  } else if (const auto* arrival = std::get_if<LastArrival>(&event)) {
    if (const auto it = connections_.find(arrival->connection); it != connections_.end())
      OnLastArrival(*it->second, arrival->at, now);
  } else if (const auto* limits = std::get_if<SetLimits>(&event)) {
    CHECK(limits->min >= 1 && limits->min <= limits->max, "min {} max {}", limits->min, limits->max);
    options_.min = limits->min;
    options_.target = limits->target;
    options_.max = limits->max;
    if (WantsBoundary()) boundary_at_ = std::min(boundary_at_, now + options_.growth_window);
  } else if (const auto* ended = std::get_if<PodEnded>(&event)) {
    OnPodEnded(ended->pod, now);
  } else if (std::holds_alternative<RequestStop>(event)) {
    if (!stop_requested_ && !ended_) {
      stop_requested_ = report_dirty_ = true;
      if (change_) change_->prepare = MakePrepare(*change_);
      boundary_at_ = std::min(boundary_at_, now + options_.gather_window);
      AddEvent(EventKind::kOther, "stop requested: workers stop after this step, then write a checkpoint");
    }
  }
  if (now >= silence_check_at_) {
    CheckSilence(now);
    CloseBusyWindow(now);
  }
  if (now >= awaited_check_at_) CheckAwaited(now);
  if (failed_operation_ && now >= failed_operation_->due) CheckOperation(now);
  Advance(now);
  if (report_dirty_ && !report_announced_) {
    report_announced_ = true;
    outputs_.push_back(ReportChanged{});
  }
}

// This process was suspended: its agents were neither silent nor late, and what they sent waits in its
// sockets.
void Coordinator::ShiftTimes(Duration gap) {
  const auto shift = [gap](Time& time) {
    if (time != kNever) time += gap;
  };
  for (auto& [agent, peer] : peers_) {
    shift(peer.heard);
    shift(peer.lost_at);
  }
  if (change_) {
    for (Participant& participant : change_->participants) shift(participant.deadline);
    shift(change_->next_deadline);
  }
  if (failed_operation_) shift(failed_operation_->due);
  if (ending_) shift(ending_->due);
  for (Time* time : {&lost_since_, &abort_at_, &awaited_check_at_, &first_join_, &last_join_, &retry_at_,
                     &stepped_at_, &started_at_, &undecided_since_, &searched_since_, &first_fatal_}) {
    shift(*time);
  }
}

void Coordinator::OnConnected(const AgentConnected& event, Time now) {
  const Hello& hello = event.hello;
  if (hello.slot < 0 || hello.slot >= options_.slots) {
    outputs_.push_back(CloseConnection{event.connection});
    return;
  }
  // Nor does an agent speak for another place than its own.
  if (const auto known = peers_.find(hello.agent);
      known != peers_.end() && (known->second.pod != hello.pod || known->second.slot != hello.slot)) {
    outputs_.push_back(CloseConnection{event.connection});
    return;
  }
  // A slot of a pod has one agent at a time: a new agent means that the old one has died.
  if (const auto place = places_.find({hello.pod, hello.slot});
      place != places_.end() && place->second->agent != hello.agent) {
    Peer& old = *place->second;
    if (!old.member.empty()) OnDown(old, Down{old.member, "eof", 0, "its agent was replaced"}, now);
    ErasePeer(old);
  }
  Peer& peer = peers_[hello.agent];
  places_[{hello.pod, hello.slot}] = &peer;
  if (peer.connection != 0) {
    connections_.erase(peer.connection);
    outputs_.push_back(CloseConnection{peer.connection});
  }
  peer.agent = hello.agent;
  peer.pod = hello.pod;
  peer.slot = hello.slot;
  peer.node = hello.node;
  peer.connection = event.connection;
  peer.heard = now;
  peer.unresponsive = peer.reported_silent = false;
  connections_[event.connection] = &peer;
  Count(peer);
  Send(peer, Welcome{options_.job, true});
  if (ended_) {
    Send(peer, Exit{exit_code_, exit_reason_, report_.phase == GangPhase::kFinished});
    return;
  }
  // A member is usable again only after its Join: messages to its old connection may be lost.
  if (!peer.member.empty()) MarkUnreachable(peer, now);
  report_dirty_ = true;
}

void Coordinator::OnDisconnected(ConnectionId connection, Time now) {
  const auto it = connections_.find(connection);
  if (it == connections_.end()) return;
  Peer& peer = *it->second;
  connections_.erase(it);
  peer.connection = 0;
  Count(peer);
  report_dirty_ = true;
  if (peer.member.empty()) {
    ErasePeer(peer);
    return;
  }
  MarkUnreachable(peer, now);
}

// A reset looks like a death until the agent connects again or another step commits: a commit needs every
// member. Peers of a dead trainer report a failed operation.
void Coordinator::MarkUnreachable(Peer& peer, Time now) {
  const bool first = peer.lost_at == kNever;
  if (first) peer.lost_at = now;
  Count(peer);
  report_dirty_ = true;
  if (ending_) return;  // its program keeps running; the end of its pod would be reported
  const bool in_current = InCurrent(peer);
  if (first && active_ && in_current && !peer.unresponsive && !failed_operation_) {
    peer.awaited = true;
    awaited_check_at_ = std::min(awaited_check_at_, now + options_.unresponsive_limit);
    if (!change_) return;
    // It may have missed the Prepare. Once it has joined again, it gets one.
    for (Participant& participant : change_->participants) {
      if (participant.peer != &peer) continue;
      participant.status.reset();
      change_->next_deadline = std::min(change_->next_deadline, participant.deadline);
    }
    return;
  }
  if (!peer.awaited) MemberLost(peer, in_current, now);
}

void Coordinator::CheckAwaited(Time now) {
  awaited_check_at_ = kNever;
  const Duration limit = UnresponsiveLimit();
  for (auto& [agent, peer] : peers_) {
    if (!peer.awaited) continue;
    const Time due =
        std::min(std::max(peer.lost_at, stepped_at_) + limit, peer.lost_at + options_.silence_limit);
    if (now < due && !failed_operation_) {
      awaited_check_at_ = std::min(awaited_check_at_, due);
      continue;
    }
    peer.awaited = false;
    MemberLost(peer, InCurrent(peer), now);
  }
}

void Coordinator::MemberLost(const Peer& peer, bool was_member, Time now) {
  if (change_) DropFromChange(peer, was_member);
  if (active_ && was_member) {
    // Also during a boundary Prepare: without this member the others cannot finish the step that the Prepare
    // lets them complete.
    abort_at_ = std::min(abort_at_, now + options_.gather_window);
    lost_since_ = std::min({lost_since_, peer.lost_at, now});
  }
}

void Coordinator::MarkHeard(Peer& peer, Time now) {
  peer.heard = now;
  if (!peer.unresponsive) return;
  peer.unresponsive = peer.reported_silent = false;
  peer.lost_at = kNever;
  Count(peer);
  report_dirty_ = true;
  // The membership change may have dropped it in the meantime.
  if (change_ && peer.usable()) AddToChange(peer, now);
}

// Leaving a member out costs a repeated step, so a pause shorter than two steps is tolerated. Before the
// first step machines are busiest (they load programs and unpack images), so the longer limit applies.
Duration Coordinator::UnresponsiveLimit() const {
  if (step_time_ == Duration::zero()) return options_.silence_limit;
  return std::clamp(2 * step_time_, options_.unresponsive_limit, options_.silence_limit);
}

void Coordinator::CheckSilence(Time now) {
  silence_check_at_ = now + options_.unresponsive_limit / 8;
  const Duration unresponsive_limit = UnresponsiveLimit();
  std::vector<Peer*> expired;
  for (auto& [agent, peer] : peers_) {
    if (peer.connection != 0 && !peer.reported_silent && now - peer.heard >= unresponsive_limit)
      outputs_.push_back(AskArrival{peer.connection});
    // Its grace (I4) is over. If it reconnects, it is a candidate like any other.
    if (peer.connection == 0 && !active_ && now - peer.lost_at > options_.holder_grace) {
      expired.push_back(&peer);
    }
  }
  for (Peer* peer : expired) ErasePeer(*peer);
}

// A coordinator that is behind with reading must not take its agents for silent.
void Coordinator::OnLastArrival(Peer& peer, Time at, Time now) {
  peer.heard = std::max(peer.heard, std::min(at, now));
  const Duration unresponsive_limit = UnresponsiveLimit();
  const Duration unheard = now - peer.heard;
  if (peer.reported_silent || unheard < unresponsive_limit) return;
  // Commits need every member: while steps commit, the trainer is alive even if its agent is starved.
  const bool steps_go_on = active_ && InCurrent(peer) && now - stepped_at_ < unresponsive_limit / 2;
  const bool silent = unheard >= options_.silence_limit;
  if (!peer.unresponsive && (silent || !steps_go_on)) {
    peer.unresponsive = true;
    AddEvent(EventKind::kWorkerSilent, peer.pod + " is silent", peer.pod);
    MarkUnreachable(peer, now);
  }
  if (silent) peer.reported_silent = report_dirty_ = true;
}

void Coordinator::OnMessage(Peer& peer, const Message& message, Time now) {
  if (ended_) return;
  if (ending_) return OnMessageAtEnd(peer, message, now);
  if (const auto* join = std::get_if<Join>(&message)) {
    OnJoin(peer, *join, now);
  } else if (const auto* facts = std::get_if<Facts>(&message)) {
    OnFacts(peer, *facts);
  } else if (const auto* status = std::get_if<MemberStatus>(&message)) {
    OnStatus(peer, *status);
  } else if (const auto* down = std::get_if<Down>(&message)) {
    OnDown(peer, *down, now);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    OnLeave(peer, *leave, now);
  } else if (const auto* progress = std::get_if<Progress>(&message)) {
    OnProgress(peer, *progress, now);
  } else if (const auto* done = std::get_if<Done>(&message)) {
    OnDone(peer, *done, now);
  } else if (const auto* fatal = std::get_if<Fatal>(&message)) {
    OnFatal(peer, *fatal, now);
  } else if (const auto* failed = std::get_if<OperationFailed>(&message)) {
    OnOperationFailed(peer, *failed, now);
  }
}

void Coordinator::OnPodEnded(const std::string& pod, Time now) {
  if (ended_) return;
  for (auto& [agent, peer] : peers_) {
    if (peer.pod != pod || peer.member.empty()) continue;
    OnDown(peer, Down{peer.member, "eof", 0, "its processes have ended"}, now);
  }
}

void Coordinator::OnFacts(Peer& peer, const Facts& facts) {
  for (const std::string& fault : facts.device_faults) {
    const bool known =
        peer.facts && std::find(peer.facts->device_faults.begin(), peer.facts->device_faults.end(), fault) !=
                          peer.facts->device_faults.end();
    if (!known) AddEvent(EventKind::kDeviceFault, peer.pod + ": " + fault, peer.pod);
  }
  peer.facts = facts;
  report_dirty_ = true;
}

void Coordinator::OnJoin(Peer& peer, const Join& join, Time now) {
  if (!IsOwn(peer.agent, join.member)) return;
  if (removed_.contains(join.member)) {
    Send(peer, rendezvous::Evict{join.member, "the job continued without it"});
    return;
  }
  report_dirty_ = true;
  CountOnFrom(join.newest, now);
  if (peer.member == join.member) {
    // The same incarnation on a new connection. Repeat what may have been lost.
    peer.lost_at = kNever;
    peer.awaited = peer.loss_counted = false;
    Count(peer);
    if (active_ && InCurrent(peer)) Send(peer, current_message_);
    if (change_) {
      AddToChange(peer, now);
    } else if (WantsBoundary()) {
      boundary_at_ = std::min(boundary_at_, now + options_.growth_window);
    }
    retry_at_ = now;
    return;
  }
  if (!peer.member.empty()) OnDown(peer, Down{peer.member, "exit", 0, "its trainer was restarted"}, now);
  peer.member = join.member;
  peer.awaited = false;
  peer.address = join.address;
  peer.fingerprints = join.fingerprints;
  peer.fatal.reset();
  peer.join_order = ++joins_;
  peer.lost_at = kNever;
  peer.loss_counted = false;
  Count(peer);
  // It has not reported a status yet. A trainer that knew an earlier coordinator may hold state.
  peer.may_hold_state = options_.resumed && current_.generation == 0;
  if (active_ && !(peer.fingerprints == fingerprints_)) {
    // Refused at once: a membership change would only interrupt the others.
    RefuseDifferent(peer, fingerprints_);
    return;
  }
  if (first_join_ == kNever) first_join_ = now;
  last_join_ = now;
  retry_at_ = now;  // it may be the holder that AwaitHoldersUntil waits for
  if (change_) {
    AddToChange(peer, now);
  } else if (WantsBoundary()) {
    boundary_at_ = std::min(boundary_at_, now + options_.growth_window);
  }
}

void Coordinator::OnStatus(Peer& peer, const MemberStatus& status) {
  if (!change_ || peer.member != status.member) return;
  if (status.generation != change_->generation) return;
  for (Participant& participant : change_->participants) {
    if (participant.peer == &peer) participant.status = status;
  }
}

void Coordinator::OnDown(Peer& peer, const Down& down, Time now) {
  if (!IsOwn(peer.agent, down.member)) return;
  if (ending_) return OnProgramEnded(peer, down, now);
  report_dirty_ = true;
  peer.died_member = down.member;
  if (down.member == peer.failed_member) {
    // The agent reports the death first and the exit code later.
    if (report_.last_failure && report_.last_failure->pod == peer.pod) {
      if (down.exit_code != 0) report_.last_failure->exit_code = down.exit_code;
      if (!down.message.empty()) report_.last_failure->message = down.message;
    }
    return;
  }
  if (removed_.contains(down.member)) return;  // already counted
  const bool joined = peer.member == down.member && !peer.member.empty();
  if (!joined && !peer.member.empty()) return;  // of an earlier incarnation
  peer.failed_member = down.member;
  if (!joined) {
    removed_.insert(down.member);
    if (peer.leaving) return;
    CountFailedStart(peer);
    CountFailure(peer, {peer.pod, down.evidence, down.exit_code, down.message});
    return;
  }
  if (!peer.leaving && !peer.loss_counted) {
    CountFailure(peer, {peer.pod, down.evidence, down.exit_code, down.message});
  }
  const bool in_current = InCurrent(peer);
  removed_.insert(peer.member);
  peer.member.clear();
  Count(peer);
  peer.may_hold_state = peer.awaited = false;
  peer.outvoted.reset();
  MemberLost(peer, in_current, now);
  if (peer.leaving) ReleasePeer(peer);
}

void Coordinator::OnLeave(Peer& peer, const Leave& leave, Time now) {
  if (peer.leaving) return;
  AddEvent(EventKind::kWorkerLeaving,
           peer.pod + " leaves by plan" + (leave.reason.empty() ? "" : " (" + leave.reason + ")"), peer.pod);
  peer.leaving = true;
  Count(peer);
  const bool needed = InCurrent(peer) || change_.has_value() || current_.generation == 0 || !active_;
  if (peer.member.empty() || !needed) {
    ReleasePeer(peer);
    return;
  }
  if (WantsBoundary()) boundary_at_ = std::min(boundary_at_, now + options_.gather_window);
}

void Coordinator::OnProgress(Peer& peer, const Progress& progress, Time now) {
  if (!InCurrent(peer)) {
    if (current_.generation != 0) return;
    // Published while no coordinator was there to record it, and repeated by the agent.
    if (progress.checkpoint_step.value_or(-1) > report_.checkpoint_step) {
      report_.checkpoint_step = *progress.checkpoint_step;
      report_dirty_ = true;
    }
    for (const StepRecord& record : progress.records) LearnStepTime(record);
    // What a trainer does before it joins is worth a note while all wait for it.
    if (!progress.note.empty()) {
      Progress note;
      note.note = progress.note;
      outputs_.push_back(ProgressOut{std::move(note)});
    }
    return;
  }
  Progress out = progress;
  out.records.clear();
  double samples = 0;
  double elapsed = 0;
  bool stepped = false;
  for (const StepRecord& record : progress.records) {
    // A status may have shown the step before its record arrives, and a step that was lost is trained again.
    if (record.step > std::min(newest_step_, recorded_step_)) LearnStepTime(record);
    if (record.step > newest_step_) {
      newest_step_ = record.step;
      stepped_at_ = now;
      // Clamp to what UnresponsiveLimit uses. max() with its arguments in this order maps NaN to zero.
      const double took = std::min(std::max(0.0, record.seconds), ToSeconds(options_.silence_limit));
      step_time_ = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(took));
      stepped = true;
    }
    if (record.step <= recorded_step_) continue;
    recorded_step_ = record.step;
    if (record.step > options_.known_checkpoint) report_.kept_samples += record.samples;
    report_.loss = record.loss;
    samples += static_cast<double>(record.samples);
    elapsed += record.seconds;
    out.records.push_back(record);
  }
  if (stepped) {
    lost_generations_ = 0;
    for (auto& [agent, other] : peers_) other.failed_starts = 0;
  }
  if (elapsed > 0) {
    // Smoothed: one batch of records may be a single short step.
    const double rate = samples / elapsed;
    const double old = report_.samples_per_second;
    report_.samples_per_second = old == 0 ? rate : 0.7 * old + 0.3 * rate;
  }
  report_.total_steps = progress.total_steps;
  if (!progress.transport.empty()) report_.transport = progress.transport;
  if (progress.checkpoint_step) {
    report_.checkpoint_step = std::max(report_.checkpoint_step, *progress.checkpoint_step);
    report_.checkpoint_failure.clear();
  }
  if (progress.checkpoint_failure) report_.checkpoint_failure = *progress.checkpoint_failure;
  if (progress.damaged_checkpoint && *progress.damaged_checkpoint != damaged_checkpoint_) {
    damaged_checkpoint_ = *progress.damaged_checkpoint;
    AddEvent(EventKind::kOther, PlaceOf(peer) + ": skipped a damaged checkpoint: " + damaged_checkpoint_,
             peer.pod);
  }
  report_dirty_ = true;
  outputs_.push_back(ProgressOut{std::move(out)});
}

void Coordinator::OnDone(Peer& peer, const Done& done, Time now) {
  if (done.finished && AdoptsEnd() && !peer.member.empty()) return AdoptEnd(peer, done, now);
  if (!InCurrent(peer) || (!done.finished && !current_.stop)) return;
  if (done.saved) report_.checkpoint_step = std::max(report_.checkpoint_step, done.step);
  if (done.finished) {
    newest_step_ = std::max(newest_step_, done.step);
    if (options_.await_programs) return AwaitPrograms(done, now);
    report_.done = done;
    End(GangPhase::kFinished, 0, "finished");
    return;
  }
  report_dirty_ = true;
  if (stop_requested_) {
    report_.done = done;
    End(GangPhase::kStopped, 0, "stopped on request");
    return;
  }
  // All holders of the state leave. New workers start from the checkpoint.
  AddEvent(EventKind::kOther,
           (done.saved ? "checkpoint written at step " : "no checkpoint is kept of step ") +
               std::to_string(done.step) + ": the last workers that hold the state leave");
  ReleaseLeavers();
  change_.reset();
  active_ = survivors_hold_ = false;
  failed_operation_.reset();
  abort_at_ = boundary_at_ = kNever;
  retry_at_ = now;
  SetCurrent({});
}

void Coordinator::OnBusy(const Peer& peer, const BusyTime& busy) {
  const auto rank = ranks_.find(peer.member);
  if (!active_ || rank == ranks_.end() || busy.generation != current_.generation) return;
  busy_.Add(rank->second, busy);
}

void Coordinator::ErasePeer(Peer& peer) {
  if (peer.connection != 0) {
    connections_.erase(peer.connection);
    outputs_.push_back(CloseConnection{peer.connection});
  }
  if (change_)
    std::erase_if(change_->participants,
                  [&](const Participant& participant) { return participant.peer == &peer; });
  if (failed_operation_ && failed_operation_->peer == &peer) failed_operation_.reset();
  report_dirty_ = true;
  peer.member.clear();
  Count(peer);
  if (const auto place = places_.find({peer.pod, peer.slot});
      place != places_.end() && place->second == &peer)
    places_.erase(place);
  peers_.erase(std::string(peer.agent));
}

void Coordinator::Count(Peer& peer) {
  if (peer.counted) --usable_[*peer.counted];
  peer.counted.reset();
  if (!peer.usable()) return;
  peer.counted = (InCurrent(peer) ? size_t{2} : 0) + (peer.leaving ? size_t{1} : 0);
  ++usable_[*peer.counted];
}

void Coordinator::SetCurrent(NewGeneration current) {
  current_ = std::move(current);
  current_message_ = std::make_shared<const Message>(current_);
  ranks_.clear();
  for (size_t rank = 0; rank < current_.members.size(); ++rank) ranks_[current_.members[rank].id] = rank;
  for (auto& [agent, peer] : peers_) Count(peer);
  std::vector<std::string> pods;
  for (const Member& member : current_.members) pods.push_back(member.pod);
  busy_ = BusyWindow(current_.generation, std::move(pods));
  stragglers_ = StragglerRule(current_.members.size());
  if (!report_.stragglers.empty()) report_dirty_ = true;
  report_.stragglers.clear();
}

void Coordinator::EvictPeer(Peer& peer, const std::string& member, const std::string& reason, bool refused) {
  removed_.insert(member);
  if (peer.connection != 0) Send(peer, rendezvous::Evict{member, reason, refused});
  peer.failed_member = member;  // its Down is not a new failure
  peer.member.clear();
  Count(peer);
  peer.may_hold_state = peer.awaited = false;
  peer.outvoted.reset();
  report_dirty_ = true;
  if (peer.leaving) ReleasePeer(peer);
}

void Coordinator::Send(const Peer& peer, Message message) {
  if (peer.connection != 0) Send(peer, std::make_shared<const Message>(std::move(message)));
}

void Coordinator::Send(const Peer& peer, const std::shared_ptr<const Message>& message) {
  if (peer.connection == 0) return;
  if (!outputs_.empty()) {
    auto* last = std::get_if<SendTo>(&outputs_.back());
    if (last != nullptr && last->message == message) {
      last->connections.push_back(peer.connection);
      return;
    }
  }
  outputs_.push_back(SendTo{{peer.connection}, message});
}

bool Coordinator::InCurrent(const Peer& peer) const {
  return !peer.member.empty() && ranks_.contains(peer.member);
}

}  // namespace ringmaster::rendezvous
