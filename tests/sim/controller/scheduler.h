// SPDX-License-Identifier: Apache-2.0

// Scheduler: virtual time. Runs callbacks in order of time and, at the same time, of arrival. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/time.h"

namespace ringmaster::sim {

class Scheduler {
 public:
  // Differs from Time{}, so that an unset time is not mistaken for a real one.
  static constexpr Time kStart = Time{} + seconds(1000);

  Time now() const { return now_; }
  Duration elapsed() const { return now_ - kStart; }

  void After(Duration delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  void At(Time at, std::function<void()> what) {
    queue_.push({at < now_ ? now_ : at, next_sequence_++, std::move(what)});
  }

  // Returns the time of the next item; kNever when there is none.
  Time NextAt() const { return queue_.empty() ? kNever : queue_.top().at; }

  // Runs the next item. REQUIRES: there is one.
  void Step() {
    Item item = std::move(const_cast<Item&>(queue_.top()));  // NOLINT: popped right away
    queue_.pop();
    now_ = item.at;
    item.what();
  }

  // Advances the time without running an item.
  void AdvanceTo(Time at) {
    if (at > now_) now_ = at;
  }

 private:
  struct Item {
    Time at;
    uint64_t sequence;
    std::function<void()> what;
    bool operator<(const Item& other) const {
      return std::pair(other.at, other.sequence) < std::pair(at, sequence);
    }
  };
  Time now_ = kStart;
  uint64_t next_sequence_ = 0;
  std::priority_queue<Item> queue_;
};

}  // namespace ringmaster::sim
