// SPDX-License-Identifier: Apache-2.0

// One copy of values that thousands of records have in common, such as what the pods of a gang ask for. A
// value that nobody holds any more is forgotten. Any thread.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace ringmaster::kube {

template <class T>
class Interner {
 public:
  std::shared_ptr<const T> Intern(T value) {
    std::lock_guard lock(mutex_);
    std::weak_ptr<const T>& known = known_[value];
    if (auto held = known.lock()) return held;
    auto made = std::make_shared<const T>(std::move(value));
    known = made;
    if (known_.size() > sweep_at_) {
      std::erase_if(known_, [](const auto& item) { return item.second.expired(); });
      sweep_at_ = std::max(kLeast, known_.size() * 2);
    }
    return made;
  }

 private:
  static constexpr size_t kLeast = 64;
  std::mutex mutex_;
  std::map<T, std::weak_ptr<const T>> known_;
  size_t sweep_at_ = kLeast;
};

}  // namespace ringmaster::kube
