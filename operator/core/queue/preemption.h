// SPDX-License-Identifier: Apache-2.0

// PlanPreemption: which jobs make room for the head of the queue, and how much.
//
// A job preempts when its spec says so, when it is the head of the queue for room (core/room_queue.h), and
// only jobs of lower priority. First elastic jobs shrink, one worker at a time, to no fewer than their
// minimum. If the head does not fit then, whole jobs stop in addition. In both cases the lowest priority
// comes first, and the youngest job of equal ones. At last each job keeps as much of its room as possible,
// those of the highest priority first: no job gives up a worker without which the head fits, too. When not
// even all jobs of lower priority have enough room, none is preempted.
//
// A head of which more pods are missing than it asked room for is asked again first.
//
// Room that becomes free soon, as pods end, counts as free, so a plan that is made again while its victims
// end asks for nothing more. Room that a running job needs to replace lost pods does not count, unless that
// job may be preempted itself.
//
// Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/core/capacity/capacity.h"
#include "operator/core/model.h"
#include "operator/core/queue/room_queue.h"

namespace ringmaster::core {

// A job whose pods take room. Pods have their names in Capacity.
struct RoomHolder {
  struct Place {
    int32_t rank = 0;
    std::string pod;
  };
  std::string job;
  int32_t priority = 0;
  int64_t created = 0;
  bool preemptible = false;               // it waits in the queue when it has stopped
  int32_t workers = 0;                    // that it may have
  int32_t least = 0;                      // to which it can shrink; as many as `workers`: it cannot
  std::vector<Place> staying{};           // in rank order
  std::vector<std::string> leaving{};     // these pods end soon in any case
  int32_t missing = 0;                    // pods without which it cannot run
  int32_t lost = 0;                       // those of them that it had: it replaces them at once
  int32_t wanted = 0;                     // workers, while it is not preempted
  std::optional<Preemption> preempted{};  // as its ledger says
};

// Returns what the job of this key holds. `prefix`: of the names of its pods in Capacity. The caller sets
// priority, created and preemptible.
RoomHolder HolderOf(std::string key, const std::string& prefix, const Job& job, const Ledger& ledger,
                    const std::vector<Pod>& pods);

// What all jobs hold, from one plan to the next: only those that have changed since are read again, so that a
// plan does not cost more with each job that runs on. Not thread-safe.
class RoomHolders {
 public:
  // What the job holds may have changed.
  void Changed(const std::string& job);
  // Returns the jobs to read and to pass to Put before the next plan: at first all that `all` returns.
  std::set<std::string> TakeChanged(const std::function<std::vector<std::string>()>& all);
  // nullopt: it holds nothing.
  void Put(const std::string& job, std::optional<RoomHolder> holder);
  const std::vector<RoomHolder>& holders() const { return holders_; }
  // Forgets all of them while no job asks others for room.
  void Clear();

 private:
  bool follows_ = false;
  std::set<std::string> changed_;  // empty unless follows_
  std::vector<RoomHolder> holders_;
  std::map<std::string, size_t> index_;  // by job
};

// Whether the job may wait for room that others gave up for it, by what its API object says.
bool MayWaitForVictims(const Job& job, const Status& status);

struct Victim {
  std::string job;
  int32_t had = 0;
  int32_t workers = 0;  // that stay; 0: the job stops
  bool operator==(const Victim&) const = default;
};

struct PreemptionPlan {
  std::vector<Victim> victims;       // lowest priority and youngest first; empty: the head waits
  std::vector<std::string> leaving;  // all pods that end soon, those of the victims included
  std::string text;  // who makes room for the head, now and before: "ml/small (4 to 2 workers)"
};

// `head` and `wait`: of the head of the queue. `holders`: all jobs that hold room, and the head.
PreemptionPlan PlanPreemption(Capacity& capacity, const std::string& head, const RoomQueue::Wait& wait,
                              const std::vector<RoomHolder>& holders);

}  // namespace ringmaster::core
