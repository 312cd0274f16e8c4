// SPDX-License-Identifier: Apache-2.0

// Checker: gangs get places in the order of the queue.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "operator/core/decide/decide.h"
#include "operator/core/decide/decide_kueue.h"
#include "tests/sim/controller/checker.h"

namespace ringmaster::sim {

using control::Key;

namespace {

// The leader knows of room that has been free for so long, and has decided about the jobs that wait for it.
constexpr Duration kOrderLag = seconds(5);

bool StillWaits(const core::Decision& decision) {
  return std::none_of(decision.actions.begin(), decision.actions.end(), [](const core::Action& action) {
    return std::holds_alternative<core::ReserveRoom>(action);
  });
}

}  // namespace

// The last word about a job: it outlasts the leader that said it.
void Checker::NoteWaiting(const core::Observed& observed, const core::Decision& decision, Time now) {
  const Key key = {"default", observed.job.name};
  const core::Observed o = core::NotBegun(observed.status.ledger) ? core::Begun(observed, now) : observed;
  const core::RoomQueue::Standing standing = core::StandingOf(o);
  const auto awaited = core::QueuedRoom(o, o.fit, now);
  if (!awaited || standing.grows || !StillWaits(decision) || world_.deposed()) {
    waiting_.erase(key);
    return;
  }
  Waiting& waiting = waiting_[key];
  if (waiting.job_uid != o.job.uid || waiting.pods != *awaited) waiting = {};
  waiting.simple = o.pods.empty() && o.strays.empty() && o.job.TopologyKey().empty() && !o.job.autoscaler;
  waiting.job_uid = o.job.uid;
  waiting.pods = *awaited;
  waiting.excluded = core::ExcludedNodes(o.status.ledger, now);
}

// Measures the room in the true state.
void Checker::WatchWaiting() {
  const Time now = scheduler_.now();
  for (auto& [key, waiting] : waiting_) {
    const bool waits = Waits(key, waiting);
    int32_t room = PlacesFor(waiting);
    for (const auto& [of, other] : world_.jobs())
      for (const auto* pods : {&other.pods, &other.strays})
        for (const auto& [name, p] : *pods) room -= p.pod.alive() ? 1 : 0;
    const bool quiet = !world_.deposed() && now - world_.nodes_changed_at() >= kOrderLag &&
                       now - shadows_[key].spec_changed >= kOrderLag;
    if (!waits || !quiet)
      waiting.since.reset();
    else if (!waiting.since)
      waiting.since = now;
    if (!waits || !quiet || room < waiting.pods)
      waiting.fits_since.reset();
    else if (!waiting.fits_since)
      waiting.fits_since = now;
  }
}

// Whether the gang could start if it had room.
bool Checker::Waits(const Key& key, const Waiting& waiting) const {
  const JobTruth* job = world_.Find(key);
  return waiting.simple && job != nullptr && job->job.uid == waiting.job_uid && !job->job.deleted &&
         !job->job.suspend && !HeldByQuota(key, *job) && !job->status.ended() && job->pods.empty() &&
         job->strays.empty();
}

bool Checker::HeldByQuota(const Key& key, const JobTruth& job) const {
  if (job.queue.empty() && world_.WorkloadsOf(key).empty()) return false;
  return core::HeldByQuota(WithQuota(key, job));
}

int32_t Checker::RoomIn(const std::map<std::string, int32_t>& nodes, const Waiting& waiting) {
  int32_t room = 0;
  for (const auto& [name, places] : nodes)
    if (std::find(waiting.excluded.begin(), waiting.excluded.end(), name) == waiting.excluded.end())
      room += places;
  return room;
}

int32_t Checker::PlacesFor(const Waiting& waiting) const {
  std::map<std::string, int32_t> places;
  for (const auto& [name, node] : world_.nodes())
    if (!node.lost_since && !node.reported_since && !node.cordoned) places[name] = node.pod_capacity;
  return RoomIn(places, waiting);
}

void Checker::CheckTurn(const Key& key, const Placing& placing) {
  if (world_.deposed() || placing.standing.stuck || placing.standing.grows) return;
  for (const auto& [other, waiting] : waiting_) {
    const bool ahead = PriorityOf(other) > PriorityOf(key) ||
                       (PriorityOf(other) == PriorityOf(key) && AgeOf(other) < AgeOf(key));
    const auto long_enough = [&](const std::optional<Time>& since) {
      return since && scheduler_.now() - *since >= kOrderLag;
    };
    if (other == key || !ahead) continue;
    // What the leader knows of, too.
    const int32_t room = RoomIn(placing.free, waiting), left = RoomIn(placing.left, waiting);
    const bool head = placing.head == other.ToString();
    const int32_t most = PlacesFor(waiting);
    Require(
        !head || !long_enough(waiting.since) || most < waiting.pods || most - (room - left) >= waiting.pods,
        "I27",
        fmt::format("{} gets places, and {}, which is ahead of it, has no room until it ends", key.name,
                    other.name));
    if (!long_enough(waiting.fits_since)) continue;
    Require(room < waiting.pods || left >= waiting.pods, "I27",
            fmt::format("{} gets places before {}, which is ahead of it and has had room for {} ms", key.name,
                        other.name, ToMs(scheduler_.now() - *waiting.fits_since)));
  }
}

}  // namespace ringmaster::sim
