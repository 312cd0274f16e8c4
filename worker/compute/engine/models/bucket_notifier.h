// SPDX-License-Identifier: Apache-2.0

// Reports each bucket once backward has passed its end. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>

#include "worker/compute/engine/layout.h"

namespace ringmaster::engine {

class BucketNotifier {
 public:
  // REQUIRES: both arguments outlive the notifier.
  BucketNotifier(const Layout& layout, const std::function<void(int)>& on_final)
      : layout_(layout), on_final_(on_final) {}

  // Reports the buckets that end at or before `end`: all gradients before it are final.
  void Final(int64_t end) {
    while (next_ < layout_.buckets.size() && layout_.buckets[next_].end <= end) {
      if (on_final_) on_final_(static_cast<int>(next_));
      ++next_;
    }
  }

 private:
  const Layout& layout_;
  const std::function<void(int)>& on_final_;
  size_t next_ = 0;
};

}  // namespace ringmaster::engine
