// SPDX-License-Identifier: Apache-2.0

// The report of the coordinator: failures as they happen, everything else when it is read.
#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/coordinator.h"

namespace ringmaster::rendezvous {

const Report& Coordinator::report() {
  if (report_dirty_) RefreshReport();
  return report_;
}

GangPhase Coordinator::phase() const {
  if (ended_) return report_.phase;
  return stop_requested_   ? GangPhase::kStopping
         : active_         ? GangPhase::kActive
         : survivors_hold_ ? GangPhase::kPaused
                           : GangPhase::kForming;
}

void Coordinator::CountFailure(Peer& peer, FailureRecord record) {
  const bool died = record.evidence == "mutex" || record.evidence == "exit";
  EventLine line{EventKind::kWorkerFailed,
                 peer.pod + " failed (" + (died ? "its trainer died" : record.evidence) +
                     (record.exit_code != 0 ? ", exit code " + std::to_string(record.exit_code) : "") + ")" +
                     (record.message.empty() ? "" : ": " + record.message),
                 peer.pod};
  line.evidence = record.evidence;
  outputs_.push_back(std::move(line));
  ++report_.worker_failures;
  report_.last_failure = std::move(record);
  report_dirty_ = true;
}

void Coordinator::RecordFailure(Peer& peer, const std::string& member, FailureRecord record) {
  if (peer.failed_member == member && report_.last_failure && report_.last_failure->pod == peer.pod) {
    AddEvent(EventKind::kWorkerFailed, peer.pod + ": " + record.message);
    report_.last_failure = std::move(record);
    report_dirty_ = true;
  } else {
    CountFailure(peer, std::move(record));
  }
}

void Coordinator::AddFormedEvent(Time now) {
  EventLine line{EventKind::kGenerationFormed,
                 "generation " + std::to_string(current_.generation & 0xffffffff) + ": " +
                     std::to_string(current_.members.size()) + " workers" +
                     (current_.start_step >= 0 ? ", from step " + std::to_string(current_.start_step) : "") +
                     (current_.stop ? ", to write a checkpoint" : "")};
  line.generation = current_.generation;
  line.start_step = current_.start_step;
  for (const Member& member : current_.members) line.workers.push_back(member.pod);
  if (lost_since_ != kNever) line.recovery = now - lost_since_;
  lost_since_ = kNever;
  outputs_.push_back(std::move(line));
}

void Coordinator::CloseBusyWindow(Time now) {
  if (!active_) return;
  std::optional<GangBusyTimes> times = busy_.Close(now);
  if (!times) return;
  const std::vector<StragglerRule::Change> changes = stragglers_.Add(times->ranks);
  for (size_t rank = 0; rank < times->ranks.size(); ++rank)
    times->ranks[rank].straggler = stragglers_.IsStraggler(rank);
  for (const StragglerRule::Change& change : changes) {
    const std::string& pod = (*times->pods)[change.rank];
    if (change.straggler) {
      AddEvent(EventKind::kStraggler,
               fmt::format(
                   "{} (rank {}) is slow: busy for {:.3g} ms of each step, {:.2g} x the median of the gang",
                   pod, change.rank, 1e3 * times->ranks[change.rank].seconds, change.ratio),
               pod);
    } else {
      AddEvent(EventKind::kStragglerEnded,
               fmt::format("{} (rank {}) is as fast as the others again", pod, change.rank), pod);
    }
  }
  if (!changes.empty()) {
    report_.stragglers.clear();
    for (size_t rank = 0; rank < times->ranks.size(); ++rank)
      if (times->ranks[rank].straggler) report_.stragglers.push_back((*times->pods)[rank]);
    report_dirty_ = true;
  }
  outputs_.push_back(*std::move(times));
}

void Coordinator::RefreshReport() {
  report_dirty_ = report_announced_ = false;
  Report& r = report_;
  r.generation = current_.generation;
  r.step = newest_step_;
  if (!active_) r.stragglers.clear();
  r.live_pods.clear();
  r.heard_pods.clear();
  r.facts.clear();
  std::set<std::string> silent;
  int32_t failed_starts = 0;
  std::unordered_map<std::string_view, const Peer*> by_member;
  for (const auto& [agent, peer] : peers_) {
    if (peer.reported_silent) silent.insert(peer.pod);
    const bool heard = peer.connection != 0 && !peer.unresponsive && !peer.reported_silent;
    // The slots of a pod come one after the other.
    if (heard && (r.heard_pods.empty() || r.heard_pods.back() != peer.pod)) r.heard_pods.push_back(peer.pod);
    if (peer.facts) r.facts.push_back({peer.pod, *peer.facts});
    if (peer.usable() || peer.awaited) by_member[peer.member] = &peer;
    failed_starts = std::max(failed_starts, peer.failed_starts);
  }
  std::unordered_map<std::string_view, int32_t> members_of;
  for (const Member& member : current_.members) {
    const auto it = by_member.find(member.id);
    if (it == by_member.end()) continue;
    const std::string& pod = it->second->pod;
    if (++members_of[pod] == options_.slots) r.live_pods.push_back(pod);
  }
  r.silent_pods.assign(silent.begin(), silent.end());
  std::sort(r.heard_pods.begin(), r.heard_pods.end());
  std::sort(r.facts.begin(), r.facts.end(),
            [](const WorkerFacts& one, const WorkerFacts& other) { return one.pod < other.pod; });
  r.failures_without_progress = std::max(lost_generations_, failed_starts);
  r.phase = phase();
}

}  // namespace ringmaster::rendezvous
