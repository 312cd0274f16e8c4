// SPDX-License-Identifier: Apache-2.0

// Shares equal values between records, for values that thousands of records have in common, such as the
// resource requests of a gang's pods. Values without a reference are dropped. Thread-safe.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace ringmaster::kube {

template <class T>
class Interner {
 public:
  std::shared_ptr<const T> Intern(T value) {
    MutexLock lock(mutex_);
    std::weak_ptr<const T>& known = known_[value];
    if (auto held = known.lock()) return held;
    auto made = std::make_shared<const T>(std::move(value));
    known = made;
    if (known_.size() > sweep_at_) {
      std::erase_if(known_, [](const auto& item) { return item.second.expired(); });
      sweep_at_ = std::max(kMinSweep, known_.size() * 2);
    }
    return made;
  }

 private:
  static constexpr size_t kMinSweep = 64;
  Mutex mutex_;
  std::map<T, std::weak_ptr<const T>> known_ RM_GUARDED_BY(mutex_);
  size_t sweep_at_ RM_GUARDED_BY(mutex_) = kMinSweep;  // drop expired values at this size
};

}  // namespace ringmaster::kube
