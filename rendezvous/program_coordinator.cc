// SPDX-License-Identifier: Apache-2.0

// Messages and connections of agents, and the report. program_incarnations.cc decides.
#include "rendezvous/program_coordinator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringmaster::rendezvous {
namespace {

constexpr int64_t kMaxAgeUs = 3'600'000'000;  // of a failure that an agent reports

}  // namespace

ProgramCoordinator::ProgramCoordinator(const CoordinatorOptions& options)
    : options_(options),
      programs_(options.programs.value()),
      accounted_(programs_.accounted),
      network_(options.term, programs_.check_limit, programs_.check_pause) {
  CHECK(options_.min >= 1 && options_.min <= options_.max, "min {} max {}", options_.min, options_.max);
  newest_step_ = recorded_step_ = progress_mark_ = options_.known_step;
  report_.term = options_.term;
  report_.step = options_.known_step;
}

std::vector<CoordinatorOutput> ProgramCoordinator::Take() { return std::exchange(outputs_, {}); }

void ProgramCoordinator::On(const CoordinatorEvent& event, Time now) {
  if (started_at_ == kNever) {
    started_at_ = last_on_ = last_join_ = now;
    silence_check_at_ = now + options_.silence_limit / 8;
  }
  // The server calls at least at every silence check. A longer gap means that this process was suspended.
  const Duration gap = now - last_on_;
  bool moved = gap > options_.silence_limit / 2;  // what wakeup_ depends on has changed
  if (moved) ShiftTimes(gap);
  last_on_ = now;

  if (const auto* connected = std::get_if<AgentConnected>(&event)) {
    OnConnected(*connected, now);
  } else if (const auto* gone = std::get_if<AgentDisconnected>(&event)) {
    OnDisconnected(gone->connection, now);
  } else if (const auto* from = std::get_if<MessageFrom>(&event)) {
    if (const auto it = connections_.find(from->connection); it != connections_.end()) {
      Peer& peer = *it->second;
      peer.heard = now;
      if (std::exchange(peer.silent, false)) {
        report_dirty_ = moved = true;
        Correct(peer);
      }
      if (moved) wakeup_ = NextWakeup();
      // Each agent sends five a second, so none of them may cost a look at all agents.
      if (std::holds_alternative<Ping>(from->message)) return;
      if (const auto* checked = std::get_if<PeersChecked>(&from->message))
        if (!network_.OnAnswer(from->connection, *checked)) return;
      if (stage_ != Stage::kEnded) OnMessage(peer, from->message, now);
    }
  } else if (const auto* arrival = std::get_if<LastArrival>(&event)) {
    if (const auto it = connections_.find(arrival->connection); it != connections_.end())
      OnLastArrival(*it->second, arrival->at, now);
  } else if (const auto* limits = std::get_if<SetLimits>(&event)) {
    OnLimits(*limits, now);
  } else if (const auto* ended = std::get_if<PodEnded>(&event)) {
    OnPodEnded(ended->pod, now);
  } else if (const auto* allow = std::get_if<AllowRestart>(&event)) {
    accounted_ = std::max(accounted_, allow->generation);
  } else if (std::holds_alternative<RequestStop>(event)) {
    if (!stop_requested_ && stage_ != Stage::kEnded) {
      stop_requested_ = report_dirty_ = true;
      AddEvent(EventKind::kOther, "stop requested: the programs get SIGTERM");
    }
  }
  if (now >= silence_check_at_) CheckSilence(now);
  Advance(now);
  if (report_dirty_ && !report_announced_) {
    report_announced_ = true;
    outputs_.push_back(ReportChanged{});
  }
  wakeup_ = NextWakeup();
}

void ProgramCoordinator::ShiftTimes(Duration gap) {
  const auto shift = [gap](Time& time) {
    if (time != kNever) time += gap;
  };
  for (auto& [agent, peer] : peers_) {
    shift(peer.heard);
    shift(peer.lost_at);
    shift(peer.restart_at);
  }
  for (Time* time : {&started_at_, &first_state_, &last_join_, &formed_at_, &failure_seen_, &incident_due_,
                     &ranks_missed_at_, &ranks_due_, &end_due_, &stop_until_})
    shift(*time);
  if (alone_) {
    shift(alone_->ended);
    shift(alone_->until);
  }
  for (Failure& failure : failures_) shift(failure.at);
  for (Loss& loss : losses_) shift(loss.heard);
  network_.ShiftTimes(gap);
}

// ---- connections

void ProgramCoordinator::OnConnected(const AgentConnected& event, Time now) {
  const Hello& hello = event.hello;
  const auto known = peers_.find(hello.agent);
  const bool elsewhere =
      known != peers_.end() && (known->second.pod != hello.pod || known->second.slot != hello.slot ||
                                known->second.role != hello.role);
  const int32_t slots = hello.role.empty() ? options_.slots : 1;
  // An agent does not speak for another place than its own.
  if (hello.slot < 0 || hello.slot >= slots || elsewhere || programs_.policy.Find(hello.role) == nullptr) {
    outputs_.push_back(CloseConnection{event.connection});
    return;
  }
  // A slot of a pod has one agent at a time: a new agent means that the old one has died, and its program
  // with it.
  if (const auto place = places_.find({hello.pod, hello.slot});
      place != places_.end() && place->second->agent != hello.agent) {
    const Peer& old = *place->second;
    MemberLost(old, "eof", "its agent was replaced", now);
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
  peer.role = hello.role;
  peer.checks_peers = hello.checks_peers;
  peer.connection = event.connection;
  peer.heard = now;
  peer.fresh = peer.silent = false;
  peer.released = false;  // Exit may have been lost with the old connection
  connections_[event.connection] = &peer;
  Send(peer, Welcome{options_.job, true});
  if (stage_ == Stage::kEnded) {
    Send(peer, Exit{0, "the job has ended", report_.phase == GangPhase::kFinished});
    return;
  }
  report_dirty_ = true;
}

void ProgramCoordinator::OnDisconnected(ConnectionId connection, Time now) {
  const auto it = connections_.find(connection);
  if (it == connections_.end()) return;
  Peer& peer = *it->second;
  connections_.erase(it);
  peer.connection = 0;
  peer.fresh = peer.silent = false;
  peer.lost_at = now;
  report_dirty_ = true;
}

// A lost connection may be a reset: a live agent connects again within moments.
void ProgramCoordinator::CheckLost(Time now) {
  if (AwaitsEnd()) return;
  std::vector<const Peer*> gone;
  for (const auto& [agent, peer] : peers_) {
    if (peer.connection == 0 && now >= peer.lost_at + options_.silence_limit) gone.push_back(&peer);
  }
  for (const Peer* peer : gone) {
    MemberLost(*peer, "eof", "its agent cannot be reached", now);
    ErasePeer(*peer);
  }
}

void ProgramCoordinator::CheckSilence(Time now) {
  silence_check_at_ = now + options_.silence_limit / 8;
  for (const auto& [agent, peer] : peers_) {
    if (peer.connection != 0 && !peer.silent && now - peer.heard >= options_.silence_limit)
      outputs_.push_back(AskArrival{peer.connection});
  }
}

// A coordinator that is behind with reading must not take its agents for silent.
void ProgramCoordinator::OnLastArrival(Peer& peer, Time at, Time now) {
  peer.heard = std::max(peer.heard, std::min(at, now));
  if (peer.silent || now - peer.heard < options_.silence_limit || AwaitsEnd()) return;
  peer.silent = report_dirty_ = true;
  AddEvent(EventKind::kWorkerSilent, peer.pod + " is silent");
  MemberLost(peer, "silence", "its agent is stopped or cut off", now);
}

void ProgramCoordinator::OnPodEnded(const std::string& pod, Time now) {
  std::vector<const Peer*> ended;
  for (const auto& [agent, peer] : peers_) {
    if (peer.pod == pod) ended.push_back(&peer);
  }
  for (const Peer* peer : ended) {
    MemberLost(*peer, "eof", "its processes have ended", now);
    ErasePeer(*peer);
  }
}

void ProgramCoordinator::ErasePeer(const Peer& peer) {
  if (peer.connection != 0) {
    connections_.erase(peer.connection);
    outputs_.push_back(CloseConnection{peer.connection});
  }
  if (const auto place = places_.find({peer.pod, peer.slot});
      place != places_.end() && place->second == &peer)
    places_.erase(place);
  report_dirty_ = true;
  peers_.erase(std::string(peer.agent));
}

// ---- messages

void ProgramCoordinator::OnMessage(Peer& peer, const Message& message, Time now) {
  if (const auto* state = std::get_if<ProgramState>(&message)) {
    OnState(peer, *state, now);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    OnLeave(peer, *leave);
  } else if (const auto* progress = std::get_if<Progress>(&message)) {
    OnProgress(peer, *progress, now);
  }
}

void ProgramCoordinator::OnState(Peer& peer, const ProgramState& state, Time now) {
  // Sent before it received the order to start.
  if (peer.fresh && InCurrent(peer) && state.generation < current_ && stage_ != Stage::kForming) return;
  if (peer.fresh && InCurrent(peer) && state.generation == current_ && state.life < peer.life) return;
  // An earlier coordinator may have used the same term: members ignore numbers that they have seen.
  if (const auto sequence = static_cast<uint32_t>(state.generation & 0xffffffff);
      state.generation >> 32 == options_.term && sequence <= kMaxLearnedSequence)
    sequence_ = std::max(sequence_, sequence);
  const bool was_ready = peer.ready();
  if (state.phase == ProgramPhase::kEnded || !state.evidence.empty())
    peer.ended_at = now - std::chrono::microseconds(std::clamp<int64_t>(state.ended_us, 0, kMaxAgeUs));
  if (!state.survivors.empty() && (!peer.state || peer.state->survivors != state.survivors))
    AddEvent(EventKind::kWorkerSilent, peer.pod + ": SIGKILL does not end a part of its program, " +
                                           state.survivors + ": nothing starts there before that has ended");
  peer.state = state;
  peer.stuck = peer.stuck && peer.runs();
  peer.fresh = true;
  peer.lost_at = kNever;
  report_dirty_ = true;
  if (first_state_ == kNever) first_state_ = now;
  if (peer.ready() && !was_ready) last_join_ = now;
  Correct(peer);
}

void ProgramCoordinator::OnLeave(Peer& peer, const Leave& leave) {
  if (std::exchange(peer.leaving, true)) return;
  AddEvent(EventKind::kWorkerLeaving,
           peer.pod + " leaves by plan" + (leave.reason.empty() ? "" : " (" + leave.reason + ")"));
}

void ProgramCoordinator::OnProgress(const Peer& peer, const Progress& progress, Time now) {
  if ((stage_ != Stage::kRunning && stage_ != Stage::kStopping) || !InCurrent(peer)) return;
  Progress out = progress;
  out.records.clear();
  double samples = 0;
  double elapsed = 0;
  for (StepRecord record : progress.records) {
    if (record.generation != current_) continue;
    record.workers = static_cast<int32_t>(members_.size());
    if (!std::exchange(stepped_, true)) {
      // What the last incarnation did after the checkpoint that this one started from.
      report_.lost_steps += std::max<int64_t>(0, newest_step_ - record.step + 1);
    }
    samples += static_cast<double>(record.samples);
    elapsed += record.seconds;
    if (record.step > newest_step_) {
      newest_step_ = record.step;
      without_progress_ = 0;
    }
    if (record.step <= recorded_step_) continue;
    recorded_step_ = record.step;
    if (record.step > options_.known_checkpoint) report_.kept_samples += record.samples;
    report_.loss = record.loss;
    out.records.push_back(record);
  }
  if (elapsed > 0 && samples > 0) {
    const double rate = samples / elapsed;
    const double old = report_.samples_per_second;
    report_.samples_per_second = old == 0 ? rate : 0.7 * old + 0.3 * rate;
  }
  if (progress.total_steps > 0) report_.total_steps = progress.total_steps;
  if (progress.seconds_left) report_.seconds_left = std::max<int64_t>(0, *progress.seconds_left);
  if (progress.checkpoint_step)
    report_.checkpoint_step = std::max(report_.checkpoint_step, *progress.checkpoint_step);
  report_dirty_ = true;
  if (now - formed_at_ >= programs_.stable_after) without_progress_ = 0;
  outputs_.push_back(ProgressOut{std::move(out)});
}

void ProgramCoordinator::OnLimits(const SetLimits& limits, Time now) {
  CHECK(limits.min >= 1 && limits.min <= limits.max, "min {} max {}", limits.min, limits.max);
  programs_.policy = limits.policy;
  if (options_.min == limits.min && options_.target == limits.target && options_.max == limits.max) return;
  options_.min = limits.min;
  options_.target = limits.target;
  options_.max = limits.max;
  last_join_ = now;
  report_dirty_ = true;
}

void ProgramCoordinator::Send(const Peer& peer, Message message) {
  if (peer.connection == 0) return;
  outputs_.push_back(SendTo{{peer.connection}, std::make_shared<const Message>(std::move(message))});
}

// ---- the report

const Report& ProgramCoordinator::report() {
  if (report_dirty_) RefreshReport();
  return report_;
}

GangPhase ProgramCoordinator::phase() const {
  if (stage_ == Stage::kEnded) return report_.phase;
  if (stop_requested_) return GangPhase::kStopping;
  return stage_ == Stage::kRunning ? GangPhase::kActive : GangPhase::kForming;
}

void ProgramCoordinator::RefreshReport() {
  report_dirty_ = report_announced_ = false;
  report_.generation = current_;
  report_.step = newest_step_;
  if (stage_ != Stage::kRunning) report_.seconds_left = 0;
  report_.live_pods.clear();
  report_.silent_pods.clear();
  report_.heard_pods.clear();
  std::map<std::string, int32_t> members_of;
  for (const Member& member : members_) {
    const auto it = peers_.find(member.id);
    if (it == peers_.end() || stage_ != Stage::kRunning) continue;
    const int32_t slots = member.role.empty() ? options_.slots : 1;
    if (++members_of[it->second.pod] == slots) report_.live_pods.push_back(it->second.pod);
  }
  for (const auto& [agent, peer] : peers_) {
    if (peer.silent || peer.stuck)
      report_.silent_pods.push_back(peer.pod);
    else if (peer.connection != 0)
      report_.heard_pods.push_back(peer.pod);
  }
  std::sort(report_.silent_pods.begin(), report_.silent_pods.end());
  std::sort(report_.heard_pods.begin(), report_.heard_pods.end());
  report_.failures_without_progress = without_progress_;
  report_.phase = phase();
}

}  // namespace ringmaster::rendezvous
