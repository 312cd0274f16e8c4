// SPDX-License-Identifier: Apache-2.0

// Decides which workers may take part: compares what they compute, judges trainers that cannot start or reach
// each other, and selects the member that loads the checkpoint.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/exit_codes.h"
#include "rendezvous/coordinator.h"

namespace ringmaster::rendezvous {
namespace {

constexpr size_t kMostNamed = 8;  // workers in one message
// States that differ this often, with fewer steps in between, differ because of the program.
constexpr int32_t kMostDivergences = 3;
constexpr int64_t kDivergenceSteps = 1000;

// Returns the words of `own` that are not words of `other`, or all of it. A program's fingerprint has a word
// for each of its parts: "optimizer=0f3a21bb".
std::string DifferentWords(const std::string& own, const std::string& other) {
  std::istringstream words(own);
  const std::string others = " " + other + " ";
  std::string different;
  for (std::string word; words >> word;)
    if (others.find(" " + word + " ") == std::string::npos)
      different += (different.empty() ? "" : " ") + word;
  return different.empty() ? own : different;
}

// Returns which of the fingerprints differs, its values, and the remedy.
struct Difference {
  std::string own;
  std::string others;
  std::string remedy;
};

Difference Compare(const Fingerprints& own, const Fingerprints& others) {
  if (own.data != others.data) {
    return {"data " + own.data, "data " + others.data,
            "give all nodes the same files at spec.training.data.path"};
  }
  if (own.job != others.job) {
    return {"job " + DifferentWords(own.job, others.job), "job " + DifferentWords(others.job, own.job),
            "all workers must read the same job and run the same program and build"};
  }
  return {
      own.device, others.device,
      "give all workers the same kind of device (a node selector in spec.workers.template), or name one in "
      "spec.training.device; CPUs of several generations can share a native job with the environment "
      "variable DNNL_MAX_CPU_ISA=AVX2 on every worker"};
}

}  // namespace

std::string Coordinator::PlaceOf(const Peer& peer) {
  return peer.node.empty() ? peer.pod : peer.pod + " on node " + peer.node;
}

// ---- one job, one data set, one kind of device

// Refuses participants that would compute something else than the others: the holders of the state decide,
// and before any state exists the majority. Returns false when this cannot be decided yet, or the job ended.
bool Coordinator::CompareWorkers(MembershipChange* change, Time now) {
  int64_t newest = -1;
  for (const Participant& participant : change->participants) {
    if (participant.status->has_state) newest = std::max(newest, participant.status->step);
  }
  const auto key = [](const Fingerprints& f) { return std::tie(f.job, f.data, f.device); };
  const auto less = [key](const Fingerprints& a, const Fingerprints& b) { return key(a) < key(b); };
  std::map<Fingerprints, std::vector<const Peer*>, decltype(less)> groups(less);
  for (const Participant& participant : change->participants) {
    const MemberStatus& status = *participant.status;
    if (newest >= 0 && (!status.has_state || status.step < newest - 1)) continue;
    groups[participant.peer->fingerprints].push_back(participant.peer);
  }
  if (groups.empty()) return true;
  const auto smaller = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto largest = std::max_element(groups.begin(), groups.end(), smaller);
  for (auto other = groups.begin(); other != groups.end(); ++other) {
    if (other == largest || other->second.size() < largest->second.size()) continue;
    const Difference difference = Compare(largest->first, other->first);
    const std::string why = PlaceOf(*largest->second.front()) + " has " + difference.own + ", " +
                            PlaceOf(*other->second.front()) + " has " + difference.others +
                            ", and neither has a majority";
    if (newest < 0 && AwaitMoreWorkers(change->participants.size(), why, now)) return false;
    Fail("results would depend on which worker computes what: " + why + "; " + difference.remedy);
    return false;
  }
  const Fingerprints chosen = largest->first;
  std::vector<Peer*> odd;
  for (const Participant& participant : change->participants) {
    if (!(participant.peer->fingerprints == chosen)) odd.push_back(participant.peer);
  }
  for (Peer* peer : odd) {
    std::erase_if(change->participants,
                  [&](const Participant& participant) { return participant.peer == peer; });
    RefuseDifferent(*peer, chosen);
  }
  return true;
}

void Coordinator::RefuseDifferent(Peer& peer, const Fingerprints& chosen) {
  const Difference difference = Compare(peer.fingerprints, chosen);
  Refuse(peer, peer.member, kExitRefused,
         PlaceOf(peer) + " has " + difference.own + ", the others have " + difference.others +
             ": results would depend on which worker computes what; " + difference.remedy);
}

// The failure is this worker's: the job continues without it.
void Coordinator::Refuse(Peer& peer, const std::string& member, int32_t exit_code, const std::string& why) {
  if (peer.failed_member != member) CountFailedStart(peer);
  RecordFailure(peer, member, {peer.pod, "refused", exit_code, why});
  peer.fatal.reset();
  const bool in_current = InCurrent(peer);
  EvictPeer(peer, std::string(member), why, true);
  MemberLost(peer, in_current, last_on_);
}

// Whether to wait for workers that are still to come, before a decision against the job.
bool Coordinator::AwaitMoreWorkers(size_t present, const std::string& why, Time now) {
  if (undecided_since_ == kNever) undecided_since_ = now;
  const Time until = undecided_since_ + options_.quorum_grace;
  if (present >= static_cast<size_t>(options_.target) || now >= until) return false;
  if (now >= retry_at_) AddEvent(EventKind::kOther, "waiting for more workers: " + why);
  retry_at_ = until;
  return true;
}

// ---- trainers that cannot start

// The trainers of this generation cannot continue. If one of them is dead, its loss shows by other means.
void Coordinator::OnOperationFailed(Peer& peer, const OperationFailed& failed, Time now) {
  if (!active_ || !InCurrent(peer) || peer.member != failed.member) return;
  if (failed.generation != current_.generation) return;
  if (!failed_operation_) {
    AddEvent(EventKind::kOperationFailed, peer.pod + ": " + failed.message, peer.pod);
    lost_since_ = std::min(lost_since_, now);
    failed_operation_ = {&peer, now + options_.operation_limit, failed,
                         Reachability(current_.members.size())};
    if (AwaitsMember()) awaited_check_at_ = now;
  }
  FailedOperation& operation = *failed_operation_;
  if (failed.permanent && !operation.report.permanent && !operation.report.diverged) {
    operation.peer = &peer;
    operation.report = failed;
  }
  operation.reachability.Add(ranks_.at(peer.member),
                             failed.permanent ? failed.unreachable : std::vector<int32_t>{});
  if (operation.report.permanent && operation.reachability.all_reported()) operation.due = now;
  if (failed.diverged) {
    operation.peer = &peer;
    operation.report = failed;
    operation.due = now;  // no loss explains it
  }
}

// No loss explains the failed operation: every member lives and is connected.
void Coordinator::CheckOperation(Time now) {
  if (active_ && abort_at_ != kNever) {
    // The loss of a member may explain it. If that member returns in time, nothing else ends the wait of the
    // others.
    failed_operation_->due = abort_at_;
    return;
  }
  const FailedOperation failed = *std::exchange(failed_operation_, std::nullopt);
  if (!active_) return;
  if (failed.report.diverged && DivergesAgain(failed.report)) return;
  if (failed.report.permanent && !failed.report.diverged) {
    const auto odd = failed.reachability.OddRanks();
    if (odd && !odd->empty())
      RefuseUnreachable(*odd, failed.report.message);
    else
      OnFatal(*failed.peer, Fatal{kExitBadInput, failed.report.message, failed.report.member, true}, now);
    return;
  }
  report_.last_failure = {failed.peer->pod, failed.report.diverged ? "diverged" : "operation", 0,
                          failed.report.message};
  StartChange(Urgency::kAbort, now);
  change_->failure = true;
}

// The vote of the next membership change finds the worker whose state is odd. If the states differ again
// within few steps, the program is the reason, and another change would not help: fails the job and returns
// true.
bool Coordinator::DivergesAgain(const OperationFailed& failed) {
  if (newest_step_ >= diverged_.step + kDivergenceSteps) diverged_.count = 0;
  diverged_.step = newest_step_;
  diverged_.text = failed.message;
  if (++diverged_.count < kMostDivergences) return false;
  Fail("the states of the workers differ again and again: " + failed.message);
  return true;
}

// Names the members whose states differ, by the hashes that they reported.
std::string Coordinator::WhoDiffers(const MembershipChange& change, const std::vector<size_t>& differ) const {
  std::string text = diverged_.text.empty() ? "" : ": " + diverged_.text;
  for (size_t n = 0; n < differ.size() && n < kMostNamed; ++n) {
    const Participant& participant = change.participants[differ[n]];
    text += (n == 0 ? ": " : ", ") + PlaceOf(*participant.peer) +
            fmt::format(" has {:016x}/{:016x}", participant.status->params_hash,
                        participant.status->optimizer_hash);
  }
  return text + (differ.size() > kMostNamed ? ", and so on" : "");
}

void Coordinator::RefuseUnreachable(const std::vector<int32_t>& ranks, const std::string& why) {
  std::set<std::string> members;
  for (const int32_t rank : ranks) members.insert(current_.members[static_cast<size_t>(rank)].id);
  for (auto& [agent, peer] : peers_) {
    if (!members.contains(peer.member)) continue;
    Refuse(peer, std::string(peer.member), kExitRefused,
           PlaceOf(peer) + " cannot exchange data with the other workers: " + why);
  }
}

void Coordinator::OnFatal(Peer& peer, const Fatal& fatal, Time now) {
  report_dirty_ = true;
  // The agent reports the death of a trainer first, and then why it died.
  const bool has_died = !fatal.member.empty() && peer.died_member == fatal.member;
  if (removed_.contains(fatal.member) && !has_died) {
    // The job continued without it, so its fault is no fault of the job. Its agent may start a new trainer.
    Send(peer, rendezvous::Evict{fatal.member, "the job continued without it"});
    return;
  }
  if (!peer.member.empty() && peer.member != fatal.member)
    OnDown(peer, Down{peer.member, "exit", 0, "its trainer was restarted"}, now);
  // A member that this coordinator has never known may have been left out by its predecessor.
  if (!fatal.joined || (peer.member != fatal.member && !has_died)) {
    peer.fatal = fatal;
    may_have_fatals_ = true;
    return;  // JudgeFatals decides
  }
  // After Join, what failed is the job's: all members compute the same, on the same storage. But a generation
  // that trained before this worker came would still train without it.
  const auto is_self = [&](const Member& member) { return member.id == fatal.member; };
  const auto self = std::find_if(current_.members.begin(), current_.members.end(), is_self);
  const auto rank = static_cast<int32_t>(self - current_.members.begin());
  const bool held = std::binary_search(current_.sources.begin(), current_.sources.end(), rank);
  const bool newcomer = self == current_.members.end()
                            ? current_.generation != 0
                            : !current_.sources.empty() && !held && newest_step_ <= progress_mark_;
  if (newcomer) {
    Refuse(peer, fatal.member, fatal.exit_code, fatal.message);
    return;
  }
  RecordFailure(peer, fatal.member, {peer.pod, "exit", fatal.exit_code, fatal.message});
  End(GangPhase::kFailed, fatal.exit_code, fatal.message);
}

// A trainer that cannot start shows a fault of the job when all workers say so, and of its worker when
// another one has joined. Until then the others get time to start.
void Coordinator::JudgeFatals(Time now) {
  if (!may_have_fatals_) return;
  std::vector<Peer*> fatal;
  bool joined = false;
  bool starting = false;
  for (auto& [agent, peer] : peers_) {
    if (peer.fatal) {
      fatal.push_back(&peer);
    } else if (!peer.member.empty()) {
      joined = true;
    } else if (!peer.leaving && !peer.reported_silent) {
      starting = true;
    }
  }
  fatal_due_ = kNever;
  may_have_fatals_ = !fatal.empty();
  if (fatal.empty() || stop_requested_) {
    first_fatal_ = kNever;
    return;
  }
  if (first_fatal_ == kNever) first_fatal_ = now;
  // The workers of an earlier coordinator need a moment to connect, and so do those that connected while this
  // process was suspended.
  Time known = current_.generation == 0 ? HoldersDue() : now;
  if (woke_at_ != kNever) known = std::max(known, woke_at_ + options_.holder_grace);
  const bool all = !starting && now >= known && fatal.size() >= static_cast<size_t>(options_.target);
  const bool late = now >= first_fatal_ + options_.quorum_grace;
  const bool trained = current_.generation != 0 || options_.resumed;
  if (joined || (late && trained && !all)) {
    for (Peer* peer : fatal) {
      const Fatal judged = *peer->fatal;
      Refuse(*peer, judged.member, judged.exit_code, judged.message);
    }
    first_fatal_ = kNever;
  } else if (all || (late && !starting)) {
    Peer& peer = *fatal.front();
    const Fatal judged = *peer.fatal;
    RecordFailure(peer, judged.member, {peer.pod, "exit", judged.exit_code, judged.message});
    End(GangPhase::kFailed, judged.exit_code, judged.message);
  } else if (!late) {
    fatal_due_ = first_fatal_ + options_.quorum_grace;
    if (known > now) fatal_due_ = std::min(fatal_due_, known);
  }
}

// ---- the checkpoint

// Whether to ask again, because a member has not finished its search: a folder on slow storage takes longer
// to list than a member may take to answer.
bool Coordinator::AwaitSearch(const MembershipChange& change, const std::vector<size_t>& staying, Time now) {
  const auto looks = [&](size_t i) { return change.participants[i].status->looking; };
  const auto slow = std::find_if(staying.begin(), staying.end(), looks);
  if (slow == staying.end()) return false;
  if (searched_since_ == kNever) {
    searched_since_ = now;
    AddEvent(EventKind::kOther, "waiting for slow storage: " + PlaceOf(*change.participants[*slow].peer) +
                                    ": " + change.participants[*slow].status->checkpoint_text);
  }
  if (now >= searched_since_ + options_.search_limit) return false;
  find_checkpoint_ = true;
  retry_at_ = now + options_.search_pause;
  return true;
}

// Selects the member of `staying` that can load the newest checkpoint, and moves it to the front. Returns
// false when a newer one is known to exist and no member can load it.
bool Coordinator::ChooseLoader(const MembershipChange& change, std::vector<size_t>* staying, Time now) {
  const auto found = [&](size_t i) { return change.participants[i].status->checkpoint_step; };
  // A member that has begun to load continues.
  const auto loads = [&](size_t i) {
    return current_.generation != 0 && current_.sources.empty() &&
           current_.members[static_cast<size_t>(current_.loader)].id == change.participants[i].peer->member;
  };
  const auto best = std::max_element(staying->begin(), staying->end(), [&](size_t a, size_t b) {
    return std::pair(found(a), loads(a)) < std::pair(found(b), loads(b));
  });
  std::rotate(staying->begin(), best, best + 1);
  const int64_t floor = report_.checkpoint_step;
  const bool enough = found(staying->front()) >= floor;
  if (!(enough && floor >= 0) && AwaitSearch(change, *staying, now)) return false;
  if (enough) return true;
  std::string why = "the checkpoint of step " + std::to_string(floor) + " is missing: ";
  for (size_t n = 0; n < staying->size() && n < kMostNamed; ++n) {
    const Participant& participant = change.participants[(*staying)[n]];
    why += (n == 0 ? "" : "; ") + PlaceOf(*participant.peer) + ": " + participant.status->checkpoint_text;
  }
  if (staying->size() > kMostNamed) why += "; and so on";
  if (!AwaitMoreWorkers(staying->size(), why, now)) {
    Fail(why +
         ". Restore it, or give all workers the folder that has it (spec.checkpoint.path); to start over, " +
         "create the job again with another folder");
  }
  return false;
}

}  // namespace ringmaster::rendezvous
