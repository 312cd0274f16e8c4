// SPDX-License-Identifier: Apache-2.0

// The reason of the last decision of each job, so that only another one gets a line in the log. Not
// thread-safe.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "operator/control/backend.h"

namespace ringmaster::control {

class LastReasons {
 public:
  // Returns whether it differs from the last one of this job.
  bool Change(const Key& key, const std::string& reason) {
    return std::exchange(reasons_[key], reason) != reason;
  }
  // The job is gone.
  void Forget(const Key& key) { reasons_.erase(key); }
  size_t size() const { return reasons_.size(); }

 private:
  std::map<Key, std::string> reasons_;
};

}  // namespace ringmaster::control
