// SPDX-License-Identifier: Apache-2.0

// Backoff: the delay after a failed write. 5 ms, doubling up to 30 s, with seeded jitter so that several
// controllers do not retry at the same moment. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/rng.h"
#include "base/time.h"

namespace ringmaster::control {

template <class K>
class Backoff {
 public:
  static constexpr Duration kFirst = milliseconds(5);
  static constexpr Duration kLast = seconds(30);

  explicit Backoff(uint64_t seed) : rng_(seed) {}

  // Returns the next delay: between half and all of the doubled value.
  Duration Next(const K& key) {
    const int failures = failures_[key]++;
    Duration delay = kFirst;
    for (int i = 0; i < failures && delay < kLast; ++i) delay *= 2;
    const int64_t half = std::min(delay, kLast).count() / 2;
    return Duration(half + static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(half) + 1)));
  }
  void Reset(const K& key) { failures_.erase(key); }

 private:
  SplitMix64 rng_;
  std::map<K, int> failures_;
};

}  // namespace ringmaster::control
