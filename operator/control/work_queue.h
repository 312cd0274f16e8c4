// SPDX-License-Identifier: Apache-2.0

// WorkQueue: the keys that need a reconciliation. Like client-go's work queue it keeps two sets, dirty
// (waiting) and processing, and additionally a due time per key, of which the earliest counts. A key is never
// processed twice at a time, and a change during processing is not lost. Not thread-safe; the time is an
// argument.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/time.h"

namespace ringmaster::control {

template <class K>
class WorkQueue {
 public:
  // `since`: when the key became dirty.
  void Add(const K& key, Time since) {
    if (!dirty_.emplace(key, since).second) return;
    ++added_;
    if (!processing_.contains(key)) ready_.push_back(key);
  }

  void AddAt(const K& key, Time at) {
    auto [it, inserted] = due_.emplace(key, at);
    if (!inserted) {
      if (it->second <= at) return;
      by_time_.erase({it->second, key});
      it->second = at;
    }
    by_time_.insert({at, key});
  }

  // Returns the next key to process, if any. The caller must call Done(key) afterwards.
  std::optional<K> Take(Time now) {
    while (!by_time_.empty() && by_time_.begin()->first <= now) {
      const auto [due, key] = *by_time_.begin();
      DropDue(key);
      Add(key, due);
    }
    if (ready_.empty()) return std::nullopt;
    K key = std::move(ready_.front());
    ready_.pop_front();
    const auto dirty = dirty_.find(key);
    processing_.emplace(key, Turn{std::max(now - dirty->second, Duration{0}), now});
    dirty_.erase(dirty);
    return key;
  }

  // How long the key waited in the queue, and how long its processing took.
  struct Spent {
    Duration waited{0};
    Duration worked{0};
  };
  Spent Done(const K& key, Time now) {
    const auto node = processing_.extract(key);
    CHECK(!node.empty());
    if (dirty_.contains(key)) ready_.push_back(key);
    return {node.mapped().waited, now - node.mapped().began};
  }

  void DropDue(const K& key) {
    auto it = due_.find(key);
    if (it == due_.end()) return;
    by_time_.erase({it->second, key});
    due_.erase(it);
  }

  bool processing(const K& key) const { return processing_.contains(key); }
  size_t waiting() const { return dirty_.size(); }
  int64_t added() const { return added_; }  // how often a key became dirty, in total

  // Returns when Take can return a key: Time::min() for now, kNever for not without another Add.
  Time NextWakeup() const {
    if (!ready_.empty()) return Time::min();
    return by_time_.empty() ? kNever : by_time_.begin()->first;
  }

 private:
  struct Turn {
    Duration waited{0};
    Time began{};
  };

  std::deque<K> ready_;
  std::map<K, Time> dirty_;  // since when
  std::map<K, Turn> processing_;
  std::map<K, Time> due_;
  std::set<std::pair<Time, K>> by_time_;
  int64_t added_ = 0;
};

}  // namespace ringmaster::control
