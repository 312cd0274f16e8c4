// SPDX-License-Identifier: Apache-2.0

// Incarnations of a gang of programs: how one is formed, judged, stopped and adopted.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "rendezvous/program_coordinator.h"
#include "rendezvous/rank_accounts.h"

namespace ringmaster::rendezvous {
namespace {

// The number at the end of a pod's name, which is the pod's rank; -1: none.
int64_t NumberOf(std::string_view pod) {
  const size_t digits = pod.find_last_not_of("0123456789") + 1;
  int64_t number = -1;
  std::from_chars(pod.data() + digits, pod.data() + pod.size(), number);
  return number;
}

}  // namespace

// Takes every step that is due now. Each Check changes the stage or returns false.
void ProgramCoordinator::Advance(Time now) {
  if (stage_ == Stage::kEnded) return;
  CheckEnd(now);
  CheckLost(now);
  bool changed = true;
  while (changed && stage_ != Stage::kEnded) {
    changed = stage_ == Stage::kRunning    ? CheckRunning(now)
              : stage_ == Stage::kStopping ? CheckStopping(now)
                                           : CheckForming(now);
  }
}

// ---- running

const ProgramRole& ProgramCoordinator::RoleOf(const Peer& peer) const {
  const ProgramRole* role = programs_.policy.Find(peer.role);
  return role == nullptr ? programs_.policy.workers : *role;
}

int32_t ProgramCoordinator::Workers() const {
  return static_cast<int32_t>(
      std::count_if(members_.begin(), members_.end(), [](const Member& m) { return m.role.empty(); }));
}

bool ProgramCoordinator::EndedInCurrent(const Peer& peer) const {
  return peer.state && peer.state->generation == current_ && peer.state->phase == ProgramPhase::kEnded &&
         peer.state->life >= peer.life;
}

bool ProgramCoordinator::FailedInCurrent(const Peer& peer) const {
  if (EndedInCurrent(peer)) return !Succeeded(peer);
  return peer.failing() && peer.state->generation == current_ && peer.state->life >= peer.life;
}

bool ProgramCoordinator::WasStopped(const Peer& peer) const {
  return peer.state && peer.fresh && peer.state->generation == current_ && peer.state->life >= peer.life &&
         (peer.state->phase == ProgramPhase::kIdle || peer.state->phase == ProgramPhase::kStopping);
}

bool ProgramCoordinator::Succeeded(const Peer& peer) const {
  return EndedInCurrent(peer) && peer.state->exit_code == 0;
}

bool ProgramCoordinator::Decides(const Member& member) const {
  using Decider = ProgramPolicy::Decider;
  const ProgramPolicy& policy = programs_.policy;
  if (policy.decider == Decider::kFirst) return &member == &members_.front();
  if (policy.decider == Decider::kRole) return member.role == policy.decider_role;
  const ProgramRole* role = policy.Find(member.role);
  return role == nullptr || role->completes;
}

bool ProgramCoordinator::Decided() const {
  bool any = false;
  for (const Member& member : members_) {
    if (!Decides(member)) continue;
    any = true;
    const auto it = peers_.find(member.id);
    // Erased after its success, unless it is remembered as lost or failed.
    if (it == peers_.end() ? !ErasedAfterSuccess(member.id) : !Succeeded(it->second)) return false;
  }
  return any;
}

std::string ProgramCoordinator::MissingRanks() const {
  std::vector<RanksOfWorker> workers;
  for (const Member& member : members_) {
    const auto it = peers_.find(member.id);
    const auto erased = erased_.find(member.id);
    if (it != peers_.end() && IsLive(it->second) &&
        (EndedInCurrent(it->second) || FailedInCurrent(it->second)))
      continue;  // not missed
    const ProgramState* state = nullptr;
    if (it != peers_.end() && it->second.state) state = &*it->second.state;
    if (it == peers_.end() && erased != erased_.end()) state = &erased->second;
    if (state != nullptr)
      workers.push_back({member.pod, &state->ranks, !member.role.empty(), state->open_ranks});
  }
  return programs_.policy.live_workers ? FindOpenRank(workers, options_.min) : FindMissingRank(workers);
}

bool ProgramCoordinator::HasAgentNotHeardSince(Time time) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const Peer& peer = entry.second;
    return InCurrent(peer) && peer.connection != 0 && !peer.silent && peer.heard < time;
  });
}

bool ProgramCoordinator::CheckRunning(Time now) {
  for (auto& [agent, peer] : peers_) {
    if (peer.leaving) RemoveLiveWorker(peer);
    if (peer.leaving && (!InCurrent(peer) || Succeeded(peer))) ReleaseIdle(peer);
  }
  AddLiveWorkers(now);
  const std::string missing = Decided() && programs_.policy.counts_ranks ? MissingRanks() : "";
  if (Decided() && missing.empty()) {
    Finish();
    return true;
  }
  bool failed = false;
  bool leaving = false;
  bool stopped = false;
  for (const Member& member : members_) {
    const auto it = peers_.find(member.id);
    if (it == peers_.end()) continue;
    Peer& peer = it->second;
    if (Succeeded(peer)) continue;
    leaving = leaving || peer.leaving;
    stopped = stopped || WasStopped(peer);
    if (!FailedInCurrent(peer)) continue;
    if (Spared(peer)) {
      if (RoleOf(peer).restart == ProgramRestart::kNever) {
        if (std::exchange(peer.restarts, 1) == 0) {
          const ProgramState& state = *peer.state;
          AddEvent(EventKind::kWorkerFailed,
                   DescribeEnd({peer.pod, state.evidence, state.exit_code, state.message}) +
                       "; the others run without it");
        }
        continue;
      }
      if (peer.restart_at == kNever) PlanRestart(peer, now);
      if (now >= peer.restart_at && peer.ready()) RestartAlone(peer, now);
      continue;
    }
    failed = true;
  }
  if (failed) return CheckFailures(now);
  failure_seen_ = incident_due_ = kNever;
  if (!missing.empty() && !stop_requested_) {
    // The reports of the other agents may be on their way, also when their agents are heard again.
    if (AwaitsEnd()) {
      ranks_due_ = kNever;
      return false;
    }
    if (ranks_due_ == kNever) {
      ranks_missed_at_ = now;
      ranks_due_ = now + programs_.rank_grace;
    }
    if (now < ranks_due_) return false;
    // An agent that was cut off a moment ago may have reported the ranks in vain.
    if (HasAgentNotHeardSince(ranks_missed_at_)) {
      ranks_due_ = now + options_.silence_limit / 8;
      return false;
    }
    const auto launcher =
        std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return Decides(m); });
    BeginStop(now);
    Account({launcher->pod, "launcher", missing == kNoRankSeen ? kNoRankExitCode : 0,
             "the launcher ended with exit code 0, but " + missing},
            true);
    return true;
  }
  if (AwaitsEnd() && !stop_requested_) return false;
  const int32_t size = Workers();
  std::string why;
  if (stop_requested_)
    why = "the job stops";
  else if (leaving)
    why = "a worker leaves";
  else if (stopped)
    why = "an earlier coordinator has begun to stop them";
  else if (size > options_.max && !programs_.policy.live_workers)
    why = "the job shrinks";
  else if (now >= GrowthDue())
    why = "the job grows";
  if (why.empty()) return false;
  AddEvent(EventKind::kOther, "the programs get SIGTERM: " + why);
  CountProgress(now);
  StopCurrent(programs_.stop_grace, now);
  return true;
}

Time ProgramCoordinator::GrowthDue() const {
  if (stage_ != Stage::kRunning || Workers() >= options_.max || programs_.policy.live_workers) return kNever;
  const bool waiting = std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    return entry.second.ready() && entry.second.role.empty() && !InCurrent(entry.second);
  });
  // What has begun to finish is not interrupted.
  const bool finishing = std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    return InCurrent(entry.second) && HasDoneItsPart(entry.second);
  });
  if (!waiting || finishing || Decided() || AwaitsEnd()) return kNever;
  return std::max(formed_at_ + programs_.growth_window, last_join_ + programs_.last_call);
}

void ProgramCoordinator::StopCurrent(Duration grace, Time now) {
  stage_ = Stage::kStopping;
  report_dirty_ = true;
  incident_due_ = ranks_due_ = end_due_ = kNever;
  stop_grace_ = grace;
  stop_until_ = now + grace + programs_.stop_margin;
  for (auto& [agent, peer] : peers_) Correct(peer);
}

// ---- stopping

bool ProgramCoordinator::CheckStopping(Time now) {
  // A program that has failed may have processes that survive SIGKILL: its failure is known all the same.
  const bool known = std::none_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    return entry.second.busy() && !FailedInCurrent(entry.second);
  });
  if (known && std::exchange(unjudged_, false)) Judge();
  if (stage_ == Stage::kEnded) return true;
  for (auto& [agent, peer] : peers_) {
    if (!peer.busy()) continue;
    if (now < stop_until_) return false;
    // Nothing may start where a program does not end: the controller replaces the pod.
    peer.stuck = true;
    AddEvent(EventKind::kWorkerSilent, peer.pod + " did not stop its program in time");
  }
  stop_until_ = kNever;
  stage_ = Stage::kForming;
  report_dirty_ = true;
  if (std::exchange(unjudged_, false)) Judge();
  return true;
}

// ---- forming

std::vector<ProgramCoordinator::Peer*> ProgramCoordinator::ReadyPeers() {
  std::vector<std::tuple<int64_t, int64_t, std::string, int32_t, Peer*>> sorted;
  for (auto& [agent, peer] : peers_) {
    if (peer.ready() && programs_.policy.Find(peer.role) != nullptr)
      sorted.emplace_back(programs_.policy.OrderOf(peer.role), NumberOf(peer.pod), peer.pod, peer.slot,
                          &peer);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<Peer*> peers;
  for (const auto& entry : sorted) peers.push_back(std::get<Peer*>(entry));
  return peers;
}

bool ProgramCoordinator::MayHaveEnded() const {
  if (!options_.resumed || current_ != 0) return false;
  return std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const auto& ended = entry.second.state;
    if (!ended || ended->phase != ProgramPhase::kEnded || ended->exit_code != 0) return false;
    return std::count_if(peers_.begin(), peers_.end(), [&](const auto& other) {
             return other.second.state && other.second.state->generation == ended->generation;
           }) < ended->world;
  });
}

Time ProgramCoordinator::FormationDue() const {
  if (report_.incident && report_.incident->generation > accounted_) return kNever;
  const auto count = [&](const std::string& role) {
    return static_cast<int32_t>(std::count_if(peers_.begin(), peers_.end(), [&](const auto& entry) {
      return entry.second.ready() && entry.second.role == role;
    }));
  };
  const int32_t ready = count("");
  if (ready < options_.min) return kNever;
  for (const ProgramRole& role : programs_.policy.roles) {
    if (count(role.name) < role.replicas) return kNever;
  }
  if (ready >= options_.target && !MayHaveEnded()) return last_on_;
  Time due = last_join_ + programs_.last_call;
  if (options_.resumed && current_ == 0) due = std::max(due, first_state_ + programs_.adoption_grace);
  return due;
}

bool ProgramCoordinator::CheckForming(Time now) {
  if (current_ == 0 && Adopt(now)) return true;
  bool busy = false;
  for (auto& [agent, peer] : peers_) {
    busy = busy || peer.busy();
    if (peer.leaving) ReleaseIdle(peer);
  }
  if (stop_requested_ && !busy) {
    End(GangPhase::kStopped, "stopped on request");
    return true;
  }
  if (busy || now < FormationDue()) {
    network_.Abandon();
    ReportUnreachable();
    return false;
  }
  std::vector<Peer*> members = ReadyPeers();
  std::map<std::string, int32_t> taken;
  std::erase_if(members, [&](const Peer* peer) {
    return taken[peer->role]++ >= (peer->role.empty() ? options_.max : RoleOf(*peer).replicas);
  });
  if (!CheckNetwork(members, now)) return false;
  Publish(std::move(members), now);
  return true;
}

bool ProgramCoordinator::CheckNetwork(const std::vector<Peer*>& members, Time now) {
  if (current_ != 0) return true;
  std::vector<NetworkCheck::Participant> participants;
  for (const Peer* peer : members) {
    if (!peer->checks_peers) continue;
    participants.push_back({peer->connection, {peer->agent, peer->pod, peer->state->address}});
  }
  const bool good = network_.Advance(std::move(participants), now, &outputs_);
  ReportUnreachable();
  return good;
}

void ProgramCoordinator::ReportUnreachable() {
  const std::string& text = network_.unreachable();
  if (text == report_.unreachable) return;
  report_.unreachable = text;
  report_dirty_ = true;
  if (text.empty() || text == unreachable_event_) return;
  unreachable_event_ = text;
  AddEvent(EventKind::kPeersUnreachable, "no program starts until the workers reach each other: " + text);
}

// Takes over an incarnation that started under an earlier coordinator. Returns true if the stage changed. One
// of which nothing runs any more is taken over only when all of its ranks have ended by themselves: its end
// was not reported to a coordinator, or not recorded.
bool ProgramCoordinator::Adopt(Time now) {
  if (programs_.policy.live_workers) return AdoptLive(now);
  Generation newest = 0;
  Generation newest_ended = 0;
  for (const auto& [agent, peer] : peers_) {
    if (peer.busy()) newest = std::max(newest, peer.state->generation);
    if (peer.state && peer.state->phase == ProgramPhase::kEnded)
      newest_ended = std::max(newest_ended, peer.state->generation);
  }
  const bool running = newest != 0;
  if (!running) newest = newest_ended;
  if (newest == 0) return false;
  int32_t world = 0;
  std::map<int32_t, const Peer*> ranks;
  for (const auto& [agent, peer] : peers_) {
    const bool part = peer.state && peer.state->generation == newest &&
                      (peer.runs() || peer.state->phase == ProgramPhase::kEnded);
    if (!part) continue;
    world = std::max(world, peer.state->world);
    ranks.emplace(peer.state->rank, &peer);
  }
  const bool complete = world > 0 && static_cast<int32_t>(ranks.size()) == world &&
                        ranks.begin()->first == 0 && ranks.rbegin()->first == world - 1;
  const bool late = running && now >= first_state_ + programs_.adoption_grace;
  if (!complete && !late) return false;
  std::vector<Member> members;
  for (const auto& [rank, peer] : ranks)
    members.push_back({peer->agent, peer->pod, peer->state->address, peer->role});
  SetCurrent(newest, std::move(members));
  stage_ = Stage::kRunning;
  stepped_ = true;  // steps that it lost were counted
  formed_at_ = now;
  report_dirty_ = true;
  AddEvent(EventKind::kOther, "adopted incarnation " + std::to_string(newest & 0xffffffff) + ": " +
                                  std::to_string(ranks.size()) + " of " + std::to_string(world) +
                                  " programs run");
  if (!complete) {
    const std::string first = ranks.begin()->second->pod;
    BeginStop(now);
    Account({first, "eof", 0, "some of its peers cannot be reached"}, false);
  }
  return true;
}

void ProgramCoordinator::SetCurrent(Generation generation, std::vector<Member> members) {
  current_ = generation;
  members_ = std::move(members);
  network_.Abandon();
  ReportUnreachable();
  start_message_ = std::make_shared<const Message>(StartProgram{current_, members_});
  version_ = 0;
  ranks_.clear();
  alone_.reset();
  failure_seen_ = kNever;
  unjudged_ = false;
  failures_.clear();
  losses_.clear();
  erased_.clear();
  for (const Member& member : members_) ranks_.emplace(member.id, static_cast<int32_t>(ranks_.size()));
  for (auto& [agent, peer] : peers_) {
    peer.life = peer.state && peer.state->generation == generation ? peer.state->life : 0;
    peer.restarts = 0;
    peer.restart_at = kNever;
  }
}

void ProgramCoordinator::Publish(std::vector<Peer*> members, Time now) {
  CHECK(!members.empty());
  std::vector<Member> list;
  for (const Peer* peer : members)
    list.push_back({peer->agent, peer->pod, peer->state->address, peer->role, peer->state->key});
  SetCurrent((static_cast<Generation>(options_.term) << 32) | ++sequence_, std::move(list));
  stage_ = Stage::kRunning;
  stepped_ = false;
  progress_mark_ = newest_step_;
  formed_at_ = now;
  incident_due_ = ranks_due_ = end_due_ = kNever;
  ++report_.generations;
  report_.seconds_left = 0;
  report_dirty_ = true;
  SendTo start{{}, start_message_};
  for (Peer* peer : members) {
    start.connections.push_back(peer->connection);
    // As far as is known: from here on the agent may have begun.
    *peer->state = {ProgramPhase::kRunning, current_, ranks_.at(peer->agent),
                    static_cast<int32_t>(members.size()), peer->state->address};
  }
  outputs_.push_back(std::move(start));
  EventLine line{EventKind::kGenerationFormed, "incarnation " + std::to_string(sequence_) + ": " +
                                                   std::to_string(members.size()) + " programs start"};
  for (const Peer* peer : members) line.workers.push_back(peer->pod);
  outputs_.push_back(std::move(line));
}

// ---- orders

void ProgramCoordinator::Correct(Peer& peer) {
  if (!peer.fresh || peer.released || stage_ == Stage::kEnded) return;
  const ProgramState& state = *peer.state;
  if (stage_ == Stage::kRunning && InCurrent(peer)) {
    // It has not received the order to start.
    if (state.generation < current_ && !peer.runs()) Send(peer, StartOf(peer));
    if (state.generation < current_ && peer.runs()) Send(peer, StopProgram{state.generation, 0});
    // Nor that to start again.
    if (state.generation == current_ && state.life < peer.life && !peer.runs()) Send(peer, StartOf(peer));
    // Nor the newest list of workers.
    if (state.generation == current_ && !peer.role.empty() && state.version < version_ && peer.runs())
      outputs_.push_back(SendTo{{peer.connection}, start_message_});
    return;
  }
  if (!peer.runs() || (stage_ == Stage::kForming && current_ == 0)) return;
  // It stops its program by itself when the launcher has had time to do without it.
  if (peer.leaving && IsLive(peer) && stage_ == Stage::kRunning) return;
  // An older incarnation was given up: nothing of it may last.
  const bool polite = state.generation == current_ && stage_ == Stage::kStopping;
  Send(peer, StopProgram{state.generation, polite ? ToMs(stop_grace_) : 0});
}

void ProgramCoordinator::ReleaseIdle(Peer& peer) {
  if (peer.released || !peer.fresh || peer.runs()) return;
  peer.released = true;
  Send(peer, Exit{0, "left by plan"});
}

void ProgramCoordinator::End(GangPhase phase, const std::string& reason) {
  stage_ = Stage::kEnded;
  report_.phase = phase;
  report_dirty_ = true;
  AddEvent(EventKind::kOther, reason);
  SendTo exit{{}, std::make_shared<const Message>(Exit{0, reason, phase == GangPhase::kFinished})};
  for (const auto& [agent, peer] : peers_)
    if (peer.connection != 0) exit.connections.push_back(peer.connection);
  if (!exit.connections.empty()) outputs_.push_back(std::move(exit));
}

Time ProgramCoordinator::NextWakeup() const {
  if (stage_ == Stage::kEnded || started_at_ == kNever) return kNever;
  const bool awaits_end = AwaitsEnd();
  Time wake = std::min({silence_check_at_, incident_due_, ranks_due_, stop_until_});
  // Past already: a check of silence follows.
  if (end_due_ > last_on_) wake = std::min(wake, end_due_);
  for (const auto& [agent, peer] : peers_) {
    if (peer.connection == 0 && !awaits_end) wake = std::min(wake, peer.lost_at + options_.silence_limit);
  }
  if (stage_ == Stage::kRunning) {
    wake = std::min(wake, GrowthDue());
    for (const auto& [agent, peer] : peers_) {
      // Due already, but its agent cannot be reached: its next message comes as an event.
      if (peer.restart_at > last_on_) wake = std::min(wake, peer.restart_at);
    }
  }
  if (stage_ == Stage::kForming) {
    // Due already, but agents still run something: their reports come as events.
    if (const Time due = FormationDue(); due > last_on_) wake = std::min(wake, due);
    wake = std::min(wake, network_.due());
    if (current_ == 0 && first_state_ != kNever && first_state_ + programs_.adoption_grace > last_on_)
      wake = std::min(wake, first_state_ + programs_.adoption_grace);
  }
  return wake;
}

}  // namespace ringmaster::rendezvous
