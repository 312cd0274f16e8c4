// SPDX-License-Identifier: Apache-2.0

// RecentIds is a set of strings that forgets the oldest ones beyond a limit: agents choose ids, and a set of
// them must not grow without bounds. Not thread-safe.
#pragma once

#include <deque>
#include <set>
#include <string>

namespace ringmaster::rendezvous {

class RecentIds {
 public:
  static constexpr size_t kMax = 65536;  // far more than a job loses between two generations

  void insert(const std::string& id) {
    if (!ids_.insert(id).second) return;
    order_.push_back(id);
    if (order_.size() <= kMax) return;
    ids_.erase(order_.front());
    order_.pop_front();
  }
  bool contains(const std::string& id) const { return ids_.contains(id); }
  size_t size() const { return order_.size(); }

 private:
  std::set<std::string> ids_;
  std::deque<std::string> order_;
};

}  // namespace ringmaster::rendezvous
