// SPDX-License-Identifier: Apache-2.0

// FairQueue keeps the work of several jobs and lets them take turns, so that a job with much work delays the
// others by one turn each round. Not thread-safe.
//
//   while (!queue.empty()) {
//     queue.BeginTurn();
//     while (time_is_left && (item = queue.Pop())) ...;
//     queue.EndTurn();
//   }
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace ringmaster::rendezvous {

template <class T>
class FairQueue {
 public:
  void Push(const std::string& job, T item) {
    auto [it, first] = work_.try_emplace(job);
    it->second.push_back(std::move(item));
    if (first) rotation_.push_back(job);
  }
  bool empty() const { return rotation_.empty(); }

  // REQUIRES: !empty().
  void BeginTurn() { CHECK(!rotation_.empty(), "no job has work"); }
  // Returns the next item of the job whose turn it is; nullopt: it has no more. Push may be called in a turn.
  std::optional<T> Pop() {
    std::deque<T>& items = work_.at(rotation_.front());
    if (items.empty()) return std::nullopt;
    T item = std::move(items.front());
    items.pop_front();
    return item;
  }
  void EndTurn() {
    const std::string job = std::move(rotation_.front());
    rotation_.pop_front();
    if (work_.at(job).empty()) {
      work_.erase(job);
    } else {
      rotation_.push_back(job);
    }
  }

 private:
  std::map<std::string, std::deque<T>> work_;
  std::deque<std::string> rotation_;  // the keys of work_; the first one has or gets the turn
};

}  // namespace ringmaster::rendezvous
