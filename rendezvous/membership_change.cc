// SPDX-License-Identifier: Apache-2.0

// Membership changes of the coordinator: from Prepare to NewGeneration, a pause, or the end of the job.
#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/exit_codes.h"
#include "rendezvous/codec.h"
#include "rendezvous/coordinator.h"

namespace ringmaster::rendezvous {
namespace {

constexpr Duration kLongestStep = seconds(1800);  // that deadlines follow
constexpr const char* kLateStatus = "did not answer Prepare in time";

}  // namespace

Generation Coordinator::NextGeneration() {
  return (static_cast<Generation>(options_.term) << 32) | ++sequence_;
}

// I1, also when an earlier coordinator has used the same term: the Lease was deleted, for example. Members
// ignore numbers that they have seen.
void Coordinator::CountOnFrom(Generation newest, Time now) {
  const auto sequence = static_cast<uint32_t>(newest & 0xffffffff);
  if (newest >> 32 != options_.term || sequence <= sequence_ || sequence > kMaxLearnedSequence) return;
  sequence_ = sequence;
  if (change_) StartChange(change_->urgency, now);
}

// Of two steps the shorter one: a validation, or the start of a program, makes one of them long.
void Coordinator::LearnStepTime(const StepRecord& record) {
  const double seconds = std::min(std::max(0.0, record.seconds), ToSeconds(kLongestStep));
  const auto took = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  usual_step_ = std::min(std::exchange(last_step_, took), took);
}

// A member answers when the work that it has given to its device is done: up to a whole step.
Duration Coordinator::WithStep(Duration deadline) const { return std::max(deadline, 2 * usual_step_); }

// Takes every step that is due now. Each pass of the loop either changes the state or returns.
void Coordinator::Advance(Time now) {
  if (ending_) return CheckPrograms(now);
  if (!ended_) JudgeFatals(now);
  while (!ended_) {
    if (now >= abort_at_) {
      abort_at_ = kNever;
      // A member that disconnected and rejoined within the window does not interrupt training.
      if (active_ && CurrentBroken())
        StartChange(Urgency::kAbort, now);
      else if (active_ && !change_ && !failed_operation_)
        lost_since_ = kNever;
    }
    if (change_) {
      OnChangeDeadline(now);
      if (!change_) continue;
      const bool complete =
          std::all_of(change_->participants.begin(), change_->participants.end(),
                      [](const Participant& participant) { return participant.status.has_value(); });
      if (!complete) return;
      CompleteChange(now);
      continue;
    }
    if (active_) {
      if (now < boundary_at_) return;
      boundary_at_ = kNever;
      // Its return, or its loss, causes the change.
      if (!WantsBoundary() || AwaitsMember()) return;
      StartChange(Urgency::kBoundary, now);
      continue;
    }
    boundary_at_ = kNever;
    if (stop_requested_ && usable_ == decltype(usable_){} && !AwaitHoldersUntil({}, false, now)) {
      CountLostSteps();
      End(GangPhase::kStopped, 0, "stopped on request");
      return;
    }
    if (now < FormationDue()) return;
    StartChange(Urgency::kAbort, now);
  }
}

bool Coordinator::CurrentBroken() const {
  const auto there = std::count_if(peers_.begin(), peers_.end(), [&](const auto& entry) {
    return (entry.second.usable() || entry.second.awaited) && InCurrent(entry.second);
  });
  return static_cast<size_t>(there) < current_.members.size();
}

bool Coordinator::AwaitsMember() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) { return entry.second.awaited; });
}

bool Coordinator::WantsBoundary() const {
  if (!active_ || current_.stop || ending_) return false;
  if (stop_requested_) return true;
  const auto size = static_cast<int32_t>(current_.members.size());
  const auto [joining, leaving_joiners, staying, leaving] = usable_;
  return size > options_.max || leaving > 0 || (joining > 0 && size < options_.max);
}

Time Coordinator::HoldersDue() const {
  if (!options_.resumed) return started_at_;
  return (first_join_ == kNever ? started_at_ : first_join_) + options_.holder_grace;
}

Time Coordinator::FormationDue() const {
  const int32_t staying = usable_[0] + usable_[2];
  const bool leaving = usable_[1] + usable_[3] > 0;
  // A restarted coordinator does not know yet which members hold state. They continue to train without it, so
  // it can wait for all of them to connect.
  Time due = retry_at_;
  if (current_.generation == 0) due = std::max(due, HoldersDue());
  if (leaving || (stop_requested_ && staying > 0)) return due;
  if (staying < options_.min) return kNever;
  if (staying < options_.target) {
    due = std::max(due, last_join_ + (survivors_hold_ ? options_.growth_window : options_.last_call));
  }
  return due;
}

void Coordinator::StartChange(Urgency urgency, Time now) {
  const bool failure = (change_ && change_->failure) || (active_ && CurrentBroken());
  MembershipChange change;
  change.generation = NextGeneration();
  change.urgency = urgency;
  change.limited = active_;
  change.failure = failure;
  change.find_checkpoint =
      find_checkpoint_ || (!active_ && !survivors_hold_ && !(options_.resumed && current_.generation == 0));
  change.prepare = MakePrepare(change);
  change_ = std::move(change);
  report_dirty_ = true;

  std::vector<Peer*> joiners;
  for (auto& [agent, peer] : peers_) {
    if (!peer.usable()) {
      if (active_ && InCurrent(peer) && !peer.loss_counted && !peer.leaving) {
        peer.loss_counted = true;
        CountFailure(peer,
                     {peer.pod, peer.unresponsive ? "silence" : "eof", 0, "its agent cannot be reached"});
      }
      continue;
    }
    if (InCurrent(peer))
      AddToChange(peer, now);
    else
      joiners.push_back(&peer);
  }
  std::sort(joiners.begin(), joiners.end(),
            [](const Peer* a, const Peer* b) { return a->join_order < b->join_order; });
  for (Peer* peer : joiners) AddToChange(*peer, now);
  if (urgency == Urgency::kAbort) {
    abort_at_ = kNever;
    active_ = false;
    failed_operation_.reset();
    for (auto& [agent, peer] : peers_) peer.awaited = false;
  }
}

std::shared_ptr<const Message> Coordinator::MakePrepare(const MembershipChange& change) const {
  return std::make_shared<const Message>(
      Prepare{change.generation, change.urgency, stop_requested_, change.find_checkpoint});
}

void Coordinator::AddToChange(Peer& peer, Time now) {
  CHECK(change_.has_value());
  std::vector<Participant>& participants = change_->participants;
  const auto found = std::find_if(participants.begin(), participants.end(),
                                  [&](const Participant& other) { return other.peer == &peer; });
  Participant* known = found == participants.end() ? nullptr : &*found;
  const bool joiner = current_.generation != 0 && !InCurrent(peer);
  if (known == nullptr) {
    const auto staying = [&] {
      return std::count_if(participants.begin(), participants.end(),
                           [](const Participant& other) { return !other.peer->leaving; });
    };
    if (joiner && change_->limited && (peer.leaving || staying() >= options_.max))
      return;  // it stays a standby
    known = &participants.emplace_back();
    known->peer = &peer;
  }
  known->status.reset();
  const bool others_wait = joiner && !change_->find_checkpoint;
  known->deadline = now + (change_->urgency == Urgency::kBoundary ? WithStep(options_.boundary_deadline)
                           : others_wait                          ? options_.candidate_deadline
                                                                  : WithStep(options_.status_deadline));
  change_->next_deadline = std::min(change_->next_deadline, known->deadline);
  Send(peer, change_->prepare);
}

void Coordinator::DropFromChange(const Peer& peer, bool was_member) {
  std::erase_if(change_->participants,
                [&](const Participant& participant) { return participant.peer == &peer; });
  if (was_member && !peer.leaving) change_->failure = true;
}

void Coordinator::OnChangeDeadline(Time now) {
  if (now < change_->next_deadline) return;
  std::vector<Peer*> late;
  change_->next_deadline = kNever;
  for (const Participant& participant : change_->participants) {
    if (participant.status) continue;
    if (now >= participant.deadline) {
      late.push_back(participant.peer);
    } else {
      change_->next_deadline = std::min(change_->next_deadline, participant.deadline);
    }
  }
  if (late.empty()) return;
  if (change_->urgency == Urgency::kBoundary) {
    // Either the step is long or one member hangs. The abort's deadline identifies a hanging member.
    StartChange(Urgency::kAbort, now);
    return;
  }
  for (Peer* peer : late) {
    CountFailure(*peer, {peer->pod, "hang", 0, kLateStatus});
    if (InCurrent(*peer)) change_->failure = true;
    std::erase_if(change_->participants,
                  [&](const Participant& participant) { return participant.peer == peer; });
    EvictPeer(*peer, std::string(peer->member), kLateStatus);
  }
}

void Coordinator::CompleteChange(Time now) {
  MembershipChange change = std::move(*change_);
  change_.reset();
  active_ = survivors_hold_ = false;
  failed_operation_.reset();
  abort_at_ = boundary_at_ = kNever;
  report_dirty_ = true;
  std::erase_if(change.participants, [](const Participant& participant) { return !participant.status; });

  if (!CompareWorkers(&change, now)) return;

  std::vector<MemberStatus> statuses;
  for (Participant& participant : change.participants) {
    MemberStatus status = *participant.status;
    // A state that the majority contradicted stays unusable even if that majority has died.
    if (participant.peer->outvoted && status.has_state && status.step == participant.peer->outvoted->step &&
        status.params_hash == participant.peer->outvoted->params_hash &&
        status.optimizer_hash == participant.peer->outvoted->optimizer_hash) {
      status.has_state = false;
    }
    participant.peer->may_hold_state = status.has_state;
    statuses.push_back(std::move(status));
  }
  const RecoveryPlan plan = PlanRecovery(statuses, report_.checkpoint_step);
  if (!plan.failure.empty()) {
    Fail(plan.failure + WhoDiffers(change, plan.differ));
    return;
  }
  for (const size_t i : plan.corrupt) {
    Peer& peer = *change.participants[i].peer;
    peer.outvoted = statuses[i];
    peer.may_hold_state = false;
    CountFailure(peer,
                 {peer.pod, "corrupt", 0,
                  "its state of step " + std::to_string(statuses[i].step) + " differs from the majority's" +
                      (diverged_.text.empty() ? "" : ": " + diverged_.text)});
  }
  int64_t smax = -1;
  for (const size_t i : plan.sources) smax = std::max(smax, statuses[i].step);
  newest_step_ = std::max(newest_step_, smax);
  survivors_hold_ = !plan.sources.empty();
  if (change.failure) CountWithoutProgress();

  // A standby may hold an older state, and a new coordinator has not heard from all holders. In both cases a
  // newer state may still appear.
  const bool fresh = current_.generation == 0
                         ? !options_.resumed
                         : std::any_of(plan.sources.begin(), plan.sources.end(),
                                       [&](size_t i) { return InCurrent(*change.participants[i].peer); });
  // A limited change excludes standbys. Include them now: they may be the only holders of state.
  if (!fresh && change.limited && !AllParticipate(change)) return;
  if (const auto until = AwaitHoldersUntil(plan, fresh, now)) {
    if (now >= retry_at_) AddEvent(EventKind::kOther, "waiting for workers that may still hold the state");
    retry_at_ = *until;
    return;
  }
  find_checkpoint_ = plan.sources.empty() && !change.find_checkpoint && !stop_requested_;
  if (find_checkpoint_) {
    StartChange(Urgency::kAbort, now);
  } else {
    ChooseMembers(change, plan, now);
  }
}

bool Coordinator::AllParticipate(const MembershipChange& change) const {
  std::set<const Peer*> participate;
  for (const Participant& participant : change.participants) participate.insert(participant.peer);
  return std::all_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    return !entry.second.usable() || participate.contains(&entry.second);
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

// I4. Returns until when to wait for unreachable holders of newer state; nullopt: do not wait. Holders known
// to be dead do not count.
std::optional<Time> Coordinator::AwaitHoldersUntil(const RecoveryPlan& plan, bool fresh, Time now) const {
  // A source one step behind the newest known step repeats that step bit for bit, so nothing is lost.
  if (fresh && !plan.sources.empty() && newest_step_ - plan.start_step < 2) return std::nullopt;
  Time until = std::max(now, HoldersDue());
  // A stop asks no member when none has joined, so what they hold would be lost.
  if (options_.resumed && current_.generation == 0 && first_join_ == kNever)
    until = std::max(until, started_at_ + options_.resumed_grace);
  if (options_.resumed && current_.generation == 0 && plan.sources.empty() && first_join_ != kNever &&
      newest_step_ > std::max<int64_t>(report_.checkpoint_step, 0)) {
    const auto joined =
        std::count_if(peers_.begin(), peers_.end(), [](const auto& entry) { return entry.second.usable(); });
    if (joined < options_.target) until = std::max(until, first_join_ + options_.resumed_grace);
  }
  for (const auto& [agent, peer] : peers_) {
    if (!peer.usable() && peer.may_hold_state) until = std::max(until, peer.lost_at + options_.holder_grace);
  }
  if (until <= now) return std::nullopt;
  return until;
}

namespace {

// Maps each place to the index of its first peer.
template <class Peers, class Place>
std::map<std::string, size_t> FirstOf(const Peers& peers, const Place& place) {
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < peers.size(); ++i) first.try_emplace(place(*peers[i]), i);
  return first;
}

}  // namespace

void Coordinator::SortByLocality(std::vector<Peer*>& peers) const {
  // A pod without a known node counts as a node by itself. Node names contain no slash, so these keys are
  // unique.
  const auto node = [](const Peer& peer) { return peer.node.empty() ? "/" + peer.pod : peer.node; };
  const auto pod = [](const Peer& peer) { return peer.pod; };
  const auto domain = [this](const Peer& peer) {
    return options_.domain_of && !peer.node.empty() ? options_.domain_of(peer.node) : std::string();
  };
  const auto domains = FirstOf(peers, domain);
  const auto nodes = FirstOf(peers, node);
  const auto pods = FirstOf(peers, pod);
  std::vector<std::tuple<size_t, size_t, size_t, int32_t, size_t, Peer*>> keyed;
  for (size_t i = 0; i < peers.size(); ++i) {
    Peer* peer = peers[i];
    keyed.emplace_back(domains.at(domain(*peer)), nodes.at(node(*peer)), pods.at(peer->pod), peer->slot, i,
                       peer);
  }
  std::sort(keyed.begin(), keyed.end());
  for (size_t i = 0; i < peers.size(); ++i) peers[i] = std::get<Peer*>(keyed[i]);
}

// Selects the members: holders of the state first, then members of the current generation, then by order of
// joining. Ranks keep their relative order, except that ranks of one domain, within it of one node, and
// within that of one pod, become adjacent: ring neighbours are close to each other, and as few edges of the
// ring as possible leave a domain.
void Coordinator::ChooseMembers(const MembershipChange& change, const RecoveryPlan& plan, Time now) {
  const size_t n = change.participants.size();
  std::vector<bool> is_source(n, false);
  for (const size_t i : plan.sources) is_source[i] = true;
  std::vector<size_t> rank(n, current_.members.size());
  std::vector<size_t> staying;
  std::vector<size_t> leaving_sources;
  bool source_stays = false;
  for (size_t i = 0; i < n; ++i) {
    const Peer& peer = *change.participants[i].peer;
    if (const auto found = ranks_.find(peer.member); found != ranks_.end()) rank[i] = found->second;
    if (!peer.leaving) {
      staying.push_back(i);
      source_stays = source_stays || is_source[i];
    } else if (is_source[i]) {
      leaving_sources.push_back(i);
    }
  }
  const auto order = [&](size_t i) { return std::pair(rank[i], change.participants[i].peer->join_order); };
  const auto peers_of = [&](std::vector<size_t> indices) {
    std::sort(indices.begin(), indices.end(), [&](size_t a, size_t b) { return order(a) < order(b); });
    std::vector<Peer*> peers;
    for (const size_t i : indices) peers.push_back(change.participants[i].peer);
    SortByLocality(peers);
    return peers;
  };
  std::sort(staying.begin(), staying.end(), [&](size_t a, size_t b) {
    return std::tuple(!is_source[a], order(a)) < std::tuple(!is_source[b], order(b));
  });
  const auto max = static_cast<size_t>(options_.max);
  const auto min = static_cast<size_t>(options_.min);

  if (stop_requested_) {
    if (plan.sources.empty()) {
      CountLostSteps();
      End(GangPhase::kStopped, 0, "stopped on request");
    } else {
      Publish(change, plan, peers_of(plan.sources), true, now);
    }
    return;
  }
  if (!plan.sources.empty() && !source_stays) {
    // I5. Staying members fetch the state from a leaver if together they can form a generation. Otherwise the
    // leavers write a checkpoint.
    const size_t room = max > staying.size() ? max - staying.size() : 1;
    std::vector<size_t> together = leaving_sources;
    together.resize(std::min(together.size(), room));
    const size_t joiners = std::min(staying.size(), max - together.size());
    together.insert(together.end(), staying.begin(), staying.begin() + static_cast<std::ptrdiff_t>(joiners));
    if (joiners > 0 && together.size() >= min) {
      Publish(change, plan, peers_of(together), false, now);
    } else {
      Publish(change, plan, peers_of(plan.sources), true, now);
    }
    return;
  }
  if (staying.size() >= min && !staying.empty()) {
    const Peer* loader = nullptr;
    if (plan.sources.empty()) {
      if (!ChooseLoader(change, &staying, now)) return;
      loader = change.participants[staying.front()].peer;
    }
    if (staying.size() > max) staying.resize(max);
    Publish(change, plan, peers_of(staying), false, now, loader);
    return;
  }
  // Not those that this change did not ask: a worker that is just connecting again may have the only state.
  for (const Participant& participant : change.participants) {
    if (participant.peer->leaving) ReleasePeer(*participant.peer);
  }
  AddEvent(EventKind::kPaused, "paused: " + std::to_string(staying.size()) + " of at least " +
                                   std::to_string(min) + " workers are ready");
}

void Coordinator::Publish(const MembershipChange& change, const RecoveryPlan& plan,
                          std::vector<Peer*> members, bool stop, Time now, const Peer* loader) {
  if (members.size() > kMaxMembers) {
    End(GangPhase::kFailed, kExitBadInput,
        std::to_string(members.size()) + " workers: a job has at most " + std::to_string(kMaxMembers));
    return;
  }
  std::unordered_map<const Peer*, size_t> index_of;
  for (size_t i = 0; i < change.participants.size(); ++i) index_of[change.participants[i].peer] = i;
  if (plan.sources.empty()) {
    CountLostSteps();
  } else if (newest_step_ - plan.start_step >= 2) {
    report_.lost_steps += newest_step_ - plan.start_step;
    newest_step_ = plan.start_step;
  }

  int32_t staying_sources = 0;
  NewGeneration next;
  next.generation = change.generation;
  next.start_step = plan.start_step;
  next.stop = stop;
  next.params_hash = plan.params_hash;
  next.optimizer_hash = plan.optimizer_hash;
  if (plan.sources.empty()) next.checkpoint_floor = report_.checkpoint_step;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const Peer& peer = *members[rank];
    next.members.push_back({peer.member, peer.pod, peer.address});
    if (&peer == loader) next.loader = static_cast<int32_t>(rank);
    if (std::binary_search(plan.sources.begin(), plan.sources.end(), index_of.at(&peer))) {
      next.sources.push_back(static_cast<int32_t>(rank));
      if (!peer.leaving) ++staying_sources;
    }
  }
  // Without enough members that have the state and stay (I5, min), training waits for those that fetch it.
  next.fetch_first = stop || staying_sources < options_.min;
  // I3. Unreachable members are evicted: the job continues without them.
  std::vector<Peer*> out;
  for (auto& [agent, peer] : peers_) {
    if (!peer.member.empty() && !peer.usable()) out.push_back(&peer);
  }
  for (Peer* peer : out) {
    EvictPeer(*peer, std::string(peer->member), "the job continued without it");
    if (peer->connection == 0) ErasePeer(*peer);
  }
  std::set<std::string_view> present;
  for (const auto& [agent, peer] : peers_) present.insert(peer.member);
  for (const Member& member : current_.members) {
    const bool there = present.contains(member.id);
    if (!there) removed_.insert(member.id);  // erased earlier, during a pause
  }
  SetCurrent(std::move(next));
  active_ = true;
  survivors_hold_ = false;
  undecided_since_ = searched_since_ = kNever;
  diverged_.text.clear();
  fingerprints_ = members.front()->fingerprints;
  progress_mark_ = newest_step_;
  ++report_.generations;
  report_dirty_ = true;
  for (Peer* peer : members) {
    peer->may_hold_state = true;
    peer->failed_starts = 0;
    Send(*peer, current_message_);
  }
  AddFormedEvent(now);
  if (!stop) {
    for (auto& [agent, peer] : peers_) {
      if (peer.leaving && !InCurrent(peer)) ReleasePeer(peer);
    }
  }
  if (WantsBoundary()) boundary_at_ = now + options_.growth_window;
}

// No member holds a state: the steps since the newest checkpoint are lost.
void Coordinator::CountLostSteps() {
  const int64_t from = std::max<int64_t>(report_.checkpoint_step, 0);
  if (newest_step_ > from) report_.lost_steps += newest_step_ - from;
  newest_step_ = from;
}

void Coordinator::ReleasePeer(Peer& peer) {
  Send(peer, Exit{0, "left by plan"});
  peer.member.clear();
  Count(peer);
  peer.may_hold_state = false;
}

void Coordinator::ReleaseLeavers() {
  for (auto& [agent, peer] : peers_) {
    if (peer.leaving) ReleasePeer(peer);
  }
}

void Coordinator::End(GangPhase phase, int32_t code, const std::string& reason) {
  ended_ = true;
  active_ = false;
  change_.reset();
  exit_code_ = code;
  exit_reason_ = reason;
  report_.phase = phase;
  report_dirty_ = true;
  AddEvent(EventKind::kOther, reason);
  for (auto& [agent, peer] : peers_) Send(peer, Exit{code, reason, phase == GangPhase::kFinished});
}

void Coordinator::Fail(const std::string& reason) {
  report_.failure = reason;
  End(GangPhase::kFailed, 1, reason);
}

Time Coordinator::next_wakeup() const {
  if (ended_ || started_at_ == kNever) return kNever;
  Time wake = std::min({silence_check_at_, abort_at_, awaited_check_at_, fatal_due_});
  if (failed_operation_) wake = std::min(wake, failed_operation_->due);
  if (change_) {
    wake = std::min(wake, change_->next_deadline);
  } else {
    wake = std::min(wake, active_ ? boundary_at_ : FormationDue());
  }
  return wake;
}

}  // namespace ringmaster::rendezvous
