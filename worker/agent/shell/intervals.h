// SPDX-License-Identifier: Apache-2.0

// The newest intervals between two signs of progress, and the limit that follows from them. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>

#include "base/time.h"

namespace ringmaster::agent {

class Intervals {
 public:
  // The learned limit is kFactor times the median.
  static constexpr int kFactor = 20;

  void Add(Duration interval) { newest_[count_++ % newest_.size()] = interval; }
  // Returns kFactor times the median, at least `floor`; `unlearned` without an interval.
  Duration Limit(Duration floor, Duration unlearned) const;

 private:
  std::array<Duration, 63> newest_{};  // ring buffer
  size_t count_ = 0;
};

}  // namespace ringmaster::agent
