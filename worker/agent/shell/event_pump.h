// SPDX-License-Identifier: Apache-2.0

// Feeds events to a pure state machine and executes its commands, in order. An event that the execution of a
// command causes waits until the commands of the event before it are executed. Not thread-safe.
#pragma once

#include <deque>
#include <utility>

#include "base/time.h"

namespace ringmaster::agent {

// REQUIRES: Core has On(event, time) and Take(), which returns the commands.
template <class Core, class Event>
class EventPump {
 public:
  explicit EventPump(Core* core) : core_(core) {}

  template <class Execute>
  void Feed(const Event& event, const Execute& execute) {
    events_.push_back(event);
    if (executing_) return;  // the outer call's loop handles it
    executing_ = true;
    while (!events_.empty()) {
      const Event next = std::move(events_.front());
      events_.pop_front();
      core_->On(next, Now());
      for (const auto& command : core_->Take()) execute(command);
    }
    executing_ = false;
  }

 private:
  Core* const core_;
  std::deque<Event> events_;  // consequences of the command that is executed
  bool executing_ = false;
};

}  // namespace ringmaster::agent
