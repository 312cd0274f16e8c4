// SPDX-License-Identifier: Apache-2.0

// The coordinator's rounds: from Prepare to NewGeneration, a pause, or the end.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/mutation.h"

namespace ringmaster::rendezvous {

Generation Coordinator::NextGeneration() {
  if (RM_MUTANT(kTermIgnored)) return ++sequence_;
  return (static_cast<Generation>(options_.term) << 32) | ++sequence_;
}

// Does whatever is due. Each pass either changes the stage or returns.
void Coordinator::Advance(Time now) {
  while (!ended_) {
    if (now >= abort_at_) {
      abort_at_ = kNever;
      // A member that broke off and came back within the window is no reason to stop anybody.
      if (active_ && CurrentBroken()) StartRound(Urgency::kAbort, now);
    }
    if (round_) {
      OnRoundDeadline(now);
      if (!round_) continue;
      const bool complete = std::all_of(round_->answers.begin(), round_->answers.end(),
                                        [](const Answer& answer) { return answer.status.has_value(); });
      const size_t answered =
          static_cast<size_t>(std::count_if(round_->answers.begin(), round_->answers.end(),
                                            [](const Answer& answer) { return answer.status.has_value(); }));
      const bool enough =
          complete || (RM_MUTANT(kStatusNotAwaited) && answered * 2 >= round_->answers.size());
      if (!enough) return;
      CompleteRound(now);
      continue;
    }
    if (active_) {
      if (now < boundary_at_) return;
      boundary_at_ = kNever;
      if (!WantsBoundary()) return;
      StartRound(Urgency::kBoundary, now);
      continue;
    }
    boundary_at_ = kNever;
    if (stop_requested_ &&
        std::none_of(peers_.begin(), peers_.end(), [](const auto& entry) { return entry.second.usable(); }) &&
        !AwaitHoldersUntil({}, false, now)) {
      End(GangPhase::kStopped, 0, "stopped by order");
      return;
    }
    if (now < FormationDue()) return;
    StartRound(Urgency::kAbort, now);
  }
}

bool Coordinator::CurrentBroken() const {
  return std::any_of(current_.members.begin(), current_.members.end(), [&](const Member& member) {
    return std::none_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
      return entry.second.member == member.id && entry.second.usable();
    });
  });
}

bool Coordinator::WantsBoundary() const {
  if (!active_ || current_.stop) return false;
  if (stop_requested_) return true;
  const auto size = static_cast<int32_t>(current_.members.size());
  if (size > options_.max) return true;
  return std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const Peer& peer = entry.second;
    if (!peer.usable()) return false;
    return InCurrent(peer) ? peer.leaving : !peer.leaving && size < options_.max;
  });
}

Time Coordinator::HoldersDue() const {
  if (!options_.resumed) return started_at_;
  return (first_join_ == kNever ? started_at_ : first_join_) + options_.holder_grace;
}

Time Coordinator::FormationDue() const {
  int32_t staying = 0;
  bool leaving = false;
  for (const auto& [agent, peer] : peers_) {
    if (!peer.usable()) continue;
    if (peer.leaving)
      leaving = true;
    else
      ++staying;
  }
  // After a restart of the coordinator nobody knows yet who holds what. The members train on by themselves
  // meanwhile, so there is time for all of them to connect.
  Time due = retry_at_;
  if (current_.generation == 0 && !RM_MUTANT(kHoldersNotAwaited)) due = std::max(due, HoldersDue());
  if (leaving || (stop_requested_ && staying > 0)) return due;
  if (staying < options_.min && !(RM_MUTANT(kMinIgnored) && staying > 0)) return kNever;
  if (staying < options_.target) {
    due = std::max(due, last_join_ + (survivors_hold_ ? options_.growth_window : options_.last_call));
  }
  return due;
}

void Coordinator::StartRound(Urgency urgency, Time now) {
  const bool replaces = round_.has_value();
  const bool failure = (round_ && round_->failure) || (active_ && CurrentBroken());
  Round round;
  round.generation = replaces && RM_MUTANT(kGenerationReused) ? round_->generation : NextGeneration();
  round.urgency = urgency;
  round.limited = active_;
  round.failure = failure;
  round_ = std::move(round);
  report_dirty_ = true;

  std::vector<Peer*> joiners;
  for (auto& [agent, peer] : peers_) {
    if (!peer.usable()) {
      if (active_ && InCurrent(peer) && !peer.loss_counted && !peer.leaving) {
        peer.loss_counted = true;
        CountFailure(peer, {peer.pod, peer.quiet ? "silence" : "eof", 0, "its agent cannot be reached"});
      }
      continue;
    }
    if (InCurrent(peer))
      AddToRound(peer, now);
    else
      joiners.push_back(&peer);
  }
  std::sort(joiners.begin(), joiners.end(),
            [](const Peer* a, const Peer* b) { return a->join_order < b->join_order; });
  for (Peer* peer : joiners) AddToRound(*peer, now);
  if (urgency == Urgency::kAbort) {
    abort_at_ = kNever;
    active_ = false;
  }
}

void Coordinator::AddToRound(Peer& peer, Time now) {
  CHECK(round_.has_value());
  Answer* known = nullptr;
  int32_t staying = 0;
  for (Answer& answer : round_->answers) {
    if (answer.peer == &peer) known = &answer;
    if (!answer.peer->leaving) ++staying;
  }
  const bool joiner = current_.generation != 0 && !InCurrent(peer);
  if (known == nullptr) {
    if (joiner && round_->limited && (staying >= options_.max || peer.leaving)) return;  // a standby
    known = &round_->answers.emplace_back();
    known->peer = &peer;
  }
  known->status.reset();
  known->deadline = now + (round_->urgency == Urgency::kBoundary ? options_.boundary_deadline
                           : joiner                              ? options_.candidate_deadline
                                                                 : options_.status_deadline);
  Send(peer, Prepare{round_->generation, round_->urgency, stop_requested_});
}

void Coordinator::DropFromRound(const Peer& peer, bool was_member) {
  std::erase_if(round_->answers, [&](const Answer& answer) { return answer.peer == &peer; });
  if (was_member && !peer.leaving) round_->failure = true;
}

void Coordinator::OnRoundDeadline(Time now) {
  if (RM_MUTANT(kStatusNoDeadline)) return;
  std::vector<Peer*> late;
  for (const Answer& answer : round_->answers) {
    if (!answer.status && now >= answer.deadline) late.push_back(answer.peer);
  }
  if (late.empty()) return;
  if (round_->urgency == Urgency::kBoundary) {
    if (RM_MUTANT(kNoUpgrade)) return;
    // A step may be long, or its peers may wait for one that hangs. Who it is shows in the abort.
    StartRound(Urgency::kAbort, now);
    return;
  }
  for (Peer* peer : late) {
    CountFailure(*peer, {peer->pod, "hang", 0, "did not stand still in time"});
    if (InCurrent(*peer)) round_->failure = true;
    std::erase_if(round_->answers, [&](const Answer& answer) { return answer.peer == peer; });
    ThrowOut(*peer, "did not stand still in time");
  }
}

void Coordinator::CompleteRound(Time now) {
  Round round = std::move(*round_);
  round_.reset();
  active_ = survivors_hold_ = false;
  abort_at_ = boundary_at_ = kNever;
  report_dirty_ = true;
  std::erase_if(round.answers, [](const Answer& answer) { return !answer.status; });

  std::vector<MemberStatus> statuses;
  for (Answer& answer : round.answers) {
    MemberStatus status = *answer.status;
    // A state that was outvoted does not become right because its opponents have died.
    if (answer.peer->outvoted && status.has_state && status.step == answer.peer->outvoted->step &&
        status.params_hash == answer.peer->outvoted->params_hash &&
        status.optimizer_hash == answer.peer->outvoted->optimizer_hash) {
      status.has_state = false;
    }
    answer.peer->may_hold_state = status.has_state;
    statuses.push_back(std::move(status));
  }
  const RecoveryPlan plan = PlanRecovery(statuses, report_.checkpoint_step);
  if (!plan.failure.empty()) {
    End(GangPhase::kFailed, 1, plan.failure);
    return;
  }
  for (const size_t i : plan.corrupt) {
    Peer& peer = *round.answers[i].peer;
    peer.outvoted = statuses[i];
    peer.may_hold_state = false;
    CountFailure(peer,
                 {peer.pod, "corrupt", 0,
                  "its state of step " + std::to_string(statuses[i].step) + " differs from the majority's"});
  }
  int64_t smax = -1;
  for (const size_t i : plan.sources) smax = std::max(smax, statuses[i].step);
  newest_step_ = std::max(newest_step_, smax);
  survivors_hold_ = !plan.sources.empty();
  if (round.failure) CountWithoutProgress();

  // A standby's state may be older than we know, and a new coordinator knows little: better witnesses may
  // come.
  const bool fresh = current_.generation == 0
                         ? !options_.resumed
                         : std::any_of(plan.sources.begin(), plan.sources.end(),
                                       [&](size_t i) { return InCurrent(*round.answers[i].peer); });
  // Standbys were not asked while others trained. Now they may be the only ones who hold anything.
  if (!fresh && round.limited && !AllAsked(round)) return;
  if (const auto until = AwaitHoldersUntil(plan, fresh, now)) {
    if (now >= retry_at_) Say("waiting for workers that may still hold the state");
    retry_at_ = *until;
    return;
  }
  Regroup(round, plan, now);
}

bool Coordinator::AllAsked(const Round& round) const {
  return std::all_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    return !entry.second.usable() ||
           std::any_of(round.answers.begin(), round.answers.end(),
                       [&](const Answer& answer) { return answer.peer == &entry.second; });
  });
}

void Coordinator::CountWithoutProgress() {
  if (newest_step_ > progress_mark_) {
    lost_generations_ = 0;
  } else {
    ++lost_generations_;
  }
  progress_mark_ = newest_step_;
}

// I4. A holder that is only out of reach gets some time; one that is known dead does not count.
std::optional<Time> Coordinator::AwaitHoldersUntil(const RecoveryPlan& plan, bool fresh, Time now) const {
  if (RM_MUTANT(kHoldersNotAwaited)) return std::nullopt;
  // With a source one step behind the newest step heard of, that step is simply done again, bit for bit.
  if (fresh && !plan.sources.empty() && newest_step_ - plan.start_step < 2) return std::nullopt;
  Time until = std::max(now, HoldersDue());
  for (const auto& [agent, peer] : peers_) {
    if (!peer.usable() && peer.may_hold_state) until = std::max(until, peer.lost_at + options_.holder_grace);
  }
  if (until <= now) return std::nullopt;
  return until;
}

namespace {

// Where each place of these peers comes first.
template <class Peers, class Place>
std::map<std::string, size_t> FirstOf(const Peers& peers, const Place& place) {
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < peers.size(); ++i) first.try_emplace(place(*peers[i]), i);
  return first;
}

}  // namespace

void Coordinator::StandTogether(std::vector<Peer*>& peers) {
  // A pod that did not say its node has one of its own; no node has a slash in its name.
  const auto node = [](const Peer& peer) { return peer.node.empty() ? "/" + peer.pod : peer.node; };
  const auto pod = [](const Peer& peer) { return peer.pod; };
  const auto nodes = FirstOf(peers, node);
  const auto pods = FirstOf(peers, pod);
  const auto key = [&](const Peer* peer) {
    return std::tuple(nodes.at(node(*peer)), pods.at(peer->pod), peer->slot);
  };
  std::stable_sort(peers.begin(), peers.end(), [&](const Peer* a, const Peer* b) { return key(a) < key(b); });
}

// Chooses who is in: those that hold the state first, then those that trained, then by time of joining. Ranks
// keep their order, but that those of a node, and there those of a pod, stand together: neighbours in the
// ring are then near each other wherever they can be.
void Coordinator::Regroup(const Round& round, const RecoveryPlan& plan, Time now) {
  const size_t n = round.answers.size();
  std::vector<bool> is_source(n, false);
  for (const size_t i : plan.sources) is_source[i] = true;
  std::vector<size_t> rank(n, current_.members.size());
  std::vector<size_t> staying;
  std::vector<size_t> leaving_sources;
  bool source_stays = false;
  for (size_t i = 0; i < n; ++i) {
    const Peer& peer = *round.answers[i].peer;
    for (size_t r = 0; r < current_.members.size(); ++r) {
      if (current_.members[r].id == peer.member) rank[i] = r;
    }
    if (!peer.leaving) {
      staying.push_back(i);
      source_stays = source_stays || is_source[i];
    } else if (is_source[i]) {
      leaving_sources.push_back(i);
    }
  }
  const auto order = [&](size_t i) { return std::pair(rank[i], round.answers[i].peer->join_order); };
  const auto peers_of = [&](std::vector<size_t> indices) {
    std::sort(indices.begin(), indices.end(), [&](size_t a, size_t b) { return order(a) < order(b); });
    std::vector<Peer*> peers;
    for (const size_t i : indices) peers.push_back(round.answers[i].peer);
    StandTogether(peers);
    return peers;
  };
  std::sort(staying.begin(), staying.end(), [&](size_t a, size_t b) {
    return std::tuple(!is_source[a], order(a)) < std::tuple(!is_source[b], order(b));
  });
  const auto max = RM_MUTANT(kMaxIgnored) ? size_t{1} << 20 : static_cast<size_t>(options_.max);
  const auto min = RM_MUTANT(kMinIgnored) ? size_t{1} : static_cast<size_t>(options_.min);

  if (stop_requested_) {
    if (plan.sources.empty() || RM_MUTANT(kStopNotAwaited)) {
      End(GangPhase::kStopped, 0, "stopped by order");
    } else {
      Publish(round, plan, peers_of(plan.sources), true, now);
    }
    return;
  }
  if (!plan.sources.empty() && !source_stays && !RM_MUTANT(kLeaverNotKept)) {
    // I5. The state goes to those who stay, if they can train together with a leaver; else to the disk.
    const size_t room = max > staying.size() ? max - staying.size() : 1;
    std::vector<size_t> together = leaving_sources;
    together.resize(std::min(together.size(), room));
    const size_t joiners = std::min(staying.size(), max - together.size());
    together.insert(together.end(), staying.begin(), staying.begin() + static_cast<std::ptrdiff_t>(joiners));
    if (joiners > 0 && together.size() >= min) {
      Publish(round, plan, peers_of(together), false, now);
    } else {
      Publish(round, plan, peers_of(plan.sources), true, now);
    }
    return;
  }
  if (staying.size() > max) staying.resize(max);
  if (staying.size() >= min && !staying.empty()) {
    Publish(round, plan, peers_of(staying), false, now);
    return;
  }
  ReleaseLeavers();
  Say("paused: " + std::to_string(staying.size()) + " of at least " + std::to_string(min) +
      " workers are there");
}

void Coordinator::Publish(const Round& round, const RecoveryPlan& plan, std::vector<Peer*> members, bool stop,
                          Time now) {
  const auto index_of = [&](const Peer* peer) {
    for (size_t i = 0; i < round.answers.size(); ++i) {
      if (round.answers[i].peer == peer) return i;
    }
    CHECK(false, "a member that was not asked");
    return size_t{0};
  };
  if (plan.sources.empty()) {
    const int64_t from = std::max<int64_t>(report_.checkpoint_step, 0);
    if (newest_step_ > from) report_.lost_steps += newest_step_ - from;
    newest_step_ = from;
  } else if (newest_step_ - plan.start_step >= 2) {
    report_.lost_steps += newest_step_ - plan.start_step;
    newest_step_ = plan.start_step;
  }

  NewGeneration next;
  next.generation = round.generation;
  next.start_step = plan.start_step;
  next.stop = stop;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const Peer& peer = *members[rank];
    next.members.push_back({peer.member, peer.pod, peer.address});
    const size_t i = index_of(&peer);
    if (std::binary_search(plan.sources.begin(), plan.sources.end(), i)) {
      next.sources.push_back(static_cast<int32_t>(rank));
    }
  }
  // Whoever cannot be reached now is out for good: the job goes on without it.
  std::vector<Peer*> out;
  for (auto& [agent, peer] : peers_) {
    if (!peer.member.empty() && !peer.usable()) out.push_back(&peer);
  }
  for (Peer* peer : out) {
    if (RM_MUTANT(kDeadNotRemembered)) continue;
    ThrowOut(*peer, "the job has gone on without it");
    if (peer->connection == 0) Forget(*peer);
  }
  for (const Member& member : current_.members) {
    if (RM_MUTANT(kDeadNotRemembered)) continue;
    const bool there = std::any_of(peers_.begin(), peers_.end(),
                                   [&](const auto& entry) { return entry.second.member == member.id; });
    if (!there) dead_.insert(member.id);  // given up long ago, while nobody trained
  }
  current_ = std::move(next);
  active_ = true;
  survivors_hold_ = false;
  progress_mark_ = newest_step_;
  ++report_.generations;
  report_dirty_ = true;
  for (Peer* peer : members) {
    peer->may_hold_state = true;
    Send(*peer, current_);
  }
  Say("generation " + std::to_string(current_.generation & 0xffffffff) + ": " +
      std::to_string(members.size()) + " workers" +
      (plan.start_step >= 0 ? ", from step " + std::to_string(plan.start_step) : "") +
      (stop ? ", to write a checkpoint" : ""));
  if (!stop) {
    for (auto& [agent, peer] : peers_) {
      if (peer.leaving && !InCurrent(peer)) Release(peer);
    }
  }
  if (WantsBoundary()) boundary_at_ = now + options_.growth_window;
}

void Coordinator::Release(Peer& peer) {
  Send(peer, Exit{0, "left by plan"});
  peer.member.clear();
  peer.may_hold_state = false;
}

void Coordinator::ReleaseLeavers() {
  for (auto& [agent, peer] : peers_) {
    if (peer.leaving) Release(peer);
  }
}

void Coordinator::ExitAll(int32_t code, const std::string& reason) {
  for (auto& [agent, peer] : peers_) Send(peer, Exit{code, reason});
}

void Coordinator::End(GangPhase phase, int32_t code, const std::string& reason) {
  ended_ = true;
  active_ = false;
  round_.reset();
  exit_code_ = code;
  exit_reason_ = reason;
  report_.phase = phase;
  report_dirty_ = true;
  Say(reason);
  ExitAll(code, reason);
}

Time Coordinator::next_wakeup() const {
  if (ended_ || started_at_ == kNever) return kNever;
  Time wake = std::min(silence_check_at_, abort_at_);
  if (round_) {
    for (const Answer& answer : round_->answers) {
      if (!answer.status) wake = std::min(wake, answer.deadline);
    }
  } else {
    wake = std::min(wake, active_ ? boundary_at_ : FormationDue());
  }
  return wake;
}

}  // namespace ringmaster::rendezvous
