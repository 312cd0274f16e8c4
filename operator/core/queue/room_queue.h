// SPDX-License-Identifier: Apache-2.0

// RoomQueue: the gangs that wait for room, and whose turn it is.
//
// The order. A gang that holds pods and cannot run comes first: no other gang gets the room of those pods
// until it runs. Then the higher priority, then the older job; but a namespace that uses more of the cluster
// for its weight waits longer: its jobs count as younger than they are (FairShare). The *head* is the first
// gang that the nodes can hold at all; gangs that only grow are never the head. It claims the room that it
// waits for (core/capacity.h). So it starts as soon as enough pods have ended on the nodes of its claim,
// however many smaller gangs come: they fill only the room that the head cannot use. The others wait without
// a claim until they are the head.
//
// After the free capacity has changed, a backend decides only those jobs again that would find room: with
// thousands of waiting gangs, a decision for each of them would delay the repair of running ones.
//
// Pure, no clock. Not thread-safe. All calls get the same capacity.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/capacity/capacity.h"

namespace ringmaster::core {

class RoomQueue {
 public:
  // How namespaces share the room. Of equal priority, a job counts as created later by
  //   span x (the share of the cluster that its namespace uses) / (the weight of its namespace).
  // So of two namespaces with jobs that came at about the same time, the one that uses less for its weight
  // comes first, and a job that has waited for longer than span / weight does not wait for other namespaces
  // any more: none starves. The order depends only on the jobs and the pods that exist, so each leader has
  // the same.
  struct FairShare {
    int64_t span = 0;                        // in the unit of Standing::created; 0: only the age counts
    std::map<std::string, int32_t> weights;  // by namespace; 1 for others
  };

  RoomQueue() = default;
  explicit RoomQueue(FairShare shares) : shares_(std::move(shares)) {}

  // What the place of a job in the line depends on.
  struct Standing {
    bool stuck = false;    // it holds pods, and needs more before it can run
    bool grows = false;    // it runs, and could use more
    int32_t priority = 0;  // higher comes first
    int64_t created = 0;   // on any clock that all jobs share; older comes first
    bool operator==(const Standing&) const = default;
  };
  using Need = Capacity::Need;
  struct Wait {
    Capacity::Shape shape;           // of the pods that are short of room
    int32_t pods = 1;                // that need room before the gang can act
    std::vector<std::string> peers;  // the gang's other pods, for a topology key
    Standing standing;
    bool preempts = false;     // as the head it asks jobs of lower priority for room (core/preemption.h)
    std::vector<Need> more{};  // what the gang needs in addition, of other shapes
    size_t earlier = 0;        // so many of these get their places before the pods that are short of room
    bool operator==(const Wait&) const = default;
    // All that the gang needs, in the order in which it gets its places.
    std::vector<Need> Needs() const;
  };

  // The job waits, or waits for something else than before. The head may change.
  void Set(const std::string& job, Wait wait, Capacity& capacity);
  // The job does not wait any more. The head may change.
  void Remove(const std::string& job, Capacity& capacity);
  size_t size() const { return turns_.size(); }

  bool Contains(const std::string& job) const { return turns_.contains(job); }

  // The job for which room is claimed; empty: none.
  const std::string& head() const { return head_; }
  // What the head waits for; nullptr: there is no head.
  const Wait* HeadWait() const { return head_.empty() ? nullptr : &line_.at(turns_.at(head_)); }
  // Whether a job may use the claimed room: the head, and those that come before it, waiting or not.
  bool MayUseClaim(const std::string& job, const Standing& standing, const Capacity& capacity) const;
  // Claims again, for the present free room. To be called when pods have started or ended.
  void Refresh(Capacity& capacity);

  // One pass over the queue, in parts, so that a caller can release its lock in between.
  class Sweep;
  // Continues the sweep: returns the next jobs that would find room now, in their turn. What one takes is not
  // offered to the later ones with the same shape. Ends a part after some shapes, which cost the most.
  std::vector<std::string> Ready(Capacity& capacity, Sweep& sweep);

 private:
  struct Turn {
    bool not_stuck = true;
    int64_t below_top = 0;  // the higher the priority, the smaller
    int64_t created = 0;
    std::string job;
    auto operator<=>(const Turn&) const = default;
  };
  static Turn TurnOf(const std::string& job, const Standing& standing);
  // The namespace whose share counts; without shares all jobs are of one.
  std::string SpaceOf(const std::string& job) const {
    return shares_.span == 0 ? std::string() : job.substr(0, job.find('/'));
  }
  // Jobs of one class are ordered by age and by the shares of their namespaces.
  using Class = std::pair<bool, int64_t>;  // not_stuck, below_top
  static Class ClassOf(const Turn& turn) { return {turn.not_stuck, turn.below_top}; }
  // By how much later the jobs of the namespace count as created. `more`: that it is about to use in
  // addition.
  int64_t Penalty(Class of, const std::string& space, const Capacity& capacity, double more = 0) const;
  bool Before(const Turn& one, const Turn& other, const Capacity& capacity) const;

  // Visits the waiting jobs in their order.
  struct Cursor {
    std::optional<Class> at;
    std::set<std::pair<int64_t, Turn>> next;  // of each namespace, in the present class
    std::map<std::string, double> more;       // what each namespace is about to use
  };
  // Returns the next job; nullptr: there is none. The caller passes it.
  const Turn* Next(Cursor& cursor, const Capacity& capacity) const;
  void Pass(Cursor& cursor, Turn turn, const Capacity& capacity) const;
  // Adds the first job of the namespace after `last`; nullptr: the first one.
  void Add(Cursor& cursor, const std::string& space, const Turn* last, const Capacity& capacity) const;
  void Forget(const Turn& turn);

  FairShare shares_;
  std::map<Turn, Wait> line_;
  std::map<Class, std::map<std::string, std::set<Turn>>> spaces_;  // the same jobs
  std::map<std::string, Turn> turns_;
  std::string head_;
};

class RoomQueue::Sweep {
 public:
  bool done() const { return done_; }

 private:
  friend class RoomQueue;
  bool begun_ = false;
  Cursor cursor_;
  std::map<Capacity::Shape, std::vector<int64_t>> offers_;  // the room of each domain that is left; ascending
  bool done_ = false;
};

}  // namespace ringmaster::core
