// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/intervals.h"

#include <algorithm>

namespace ringmaster::agent {

Duration Intervals::Limit(Duration floor, Duration unlearned) const {
  if (count_ == 0) return unlearned;
  const size_t count = std::min(count_, newest_.size());
  auto sorted = newest_;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(count / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<ptrdiff_t>(count));
  return std::max(floor, *middle * kFactor);
}

}  // namespace ringmaster::agent
