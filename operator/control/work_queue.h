// Which job needs a look: the two sets of client-go's queue (dirty: wants one; processing: has one under way)
// and due times, of which the earliest per key counts. A key is never processed twice at a time, and a change
// during processing is not lost. Single-threaded; time comes in as an argument.
#pragma once

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
  void Add(const K& key) {
    if (!dirty_.insert(key).second) return;
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

  // The next key to process; Done(key) must follow.
  std::optional<K> Take(Time now) {
    while (!by_time_.empty() && by_time_.begin()->first <= now) {
      const K key = by_time_.begin()->second;
      DropDue(key);
      Add(key);
    }
    if (ready_.empty()) return std::nullopt;
    K key = std::move(ready_.front());
    ready_.pop_front();
    dirty_.erase(key);
    processing_.insert(key);
    return key;
  }

  void Done(const K& key) {
    CHECK(processing_.erase(key) == 1);
    if (dirty_.contains(key)) ready_.push_back(key);
  }

  void DropDue(const K& key) {
    auto it = due_.find(key);
    if (it == due_.end()) return;
    by_time_.erase({it->second, key});
    due_.erase(it);
  }

  bool processing(const K& key) const { return processing_.contains(key); }

  // Time::min() when something can be taken now, kNever when nothing is due.
  Time NextWakeup() const {
    if (!ready_.empty()) return Time::min();
    return by_time_.empty() ? kNever : by_time_.begin()->first;
  }

 private:
  std::deque<K> ready_;
  std::set<K> dirty_;
  std::set<K> processing_;
  std::map<K, Time> due_;
  std::set<std::pair<Time, K>> by_time_;
};

}  // namespace ringmaster::control
