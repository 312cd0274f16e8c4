// SPDX-License-Identifier: Apache-2.0

// RoomQueue: the gangs that wait for room, in the order in which they began to wait. After the free capacity
// has changed, a backend decides only those again that would find room: with thousands of waiting gangs, a
// decision for each of them would delay the repair of running ones. Pure, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "operator/core/capacity.h"

namespace ringmaster::core {

class RoomQueue {
 public:
  struct Wait {
    Capacity::Shape shape;
    int32_t pods = 1;                // that need room before the gang can act
    std::vector<std::string> peers;  // the gang's other pods, for a topology key
  };

  // The job waits, or waits for something else than before. It keeps its turn.
  void Set(const std::string& job, Wait wait);
  void Remove(const std::string& job);
  size_t size() const { return turns_.size(); }

  // One pass over the queue, in parts, so that a caller can release its lock in between.
  struct Sweep {
    struct Offer {
      int32_t room = 0;
      int32_t taken = 0;
    };
    uint64_t next = 0;  // turn
    std::map<Capacity::Shape, Offer> offers;
    bool done = false;
  };
  // Continues the sweep: returns the next jobs that would find room now, in their turn. What one takes is not
  // offered to the later ones with the same shape. Ends a part after some shapes, which cost the most.
  std::vector<std::string> Ready(Capacity& capacity, Sweep& sweep) const;

 private:
  struct Entry {
    std::string job;
    Wait wait;
  };
  uint64_t next_ = 0;
  std::map<uint64_t, Entry> entries_;  // by turn
  std::map<std::string, uint64_t> turns_;
};

}  // namespace ringmaster::core
