// SPDX-License-Identifier: Apache-2.0

// RoomQueue: the gangs that wait for room, and whose turn it is.
//
// The order. A gang that holds pods and cannot run comes first: no other gang gets the room of those pods
// until it runs. Then the higher priority, then the older job. The *head* is the first gang that the nodes
// can hold at all; gangs that only grow are never the head. It claims the room that it waits for
// (core/capacity.h). So it starts as soon as enough pods have ended on the nodes of its claim, however many
// smaller gangs come: they fill only the room that the head cannot use. The others wait without a claim until
// they are the head.
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
#include <string>
#include <vector>

#include "operator/core/capacity.h"

namespace ringmaster::core {

class RoomQueue {
 public:
  // What the place of a job in the line depends on.
  struct Standing {
    bool stuck = false;    // it holds pods, and needs more before it can run
    bool grows = false;    // it runs, and could use more
    int32_t priority = 0;  // higher comes first
    int64_t created = 0;   // on any clock that all jobs share; older comes first
    bool operator==(const Standing&) const = default;
  };
  struct Wait {
    Capacity::Shape shape;
    int32_t pods = 1;                // that need room before the gang can act
    std::vector<std::string> peers;  // the gang's other pods, for a topology key
    Standing standing;
    bool operator==(const Wait&) const = default;
  };

  // The job waits, or waits for something else than before. The head may change.
  void Set(const std::string& job, Wait wait, Capacity& capacity);
  // The job does not wait any more. The head may change.
  void Remove(const std::string& job, Capacity& capacity);
  size_t size() const { return turns_.size(); }

  // The job for which room is claimed; empty: none.
  const std::string& head() const { return head_; }
  // Whether a job may use the claimed room: the head, and those that come before it, waiting or not.
  bool MayUseClaim(const std::string& job, const Standing& standing) const;
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

  std::map<Turn, Wait> line_;
  std::map<std::string, Turn> turns_;
  std::string head_;
};

class RoomQueue::Sweep {
 public:
  bool done() const { return done_; }

 private:
  friend class RoomQueue;
  struct Offer {
    int32_t room = 0;
    int32_t taken = 0;
  };
  std::optional<Turn> last_;  // the last one that was considered
  std::map<Capacity::Shape, Offer> offers_;
  bool done_ = false;
};

}  // namespace ringmaster::core
