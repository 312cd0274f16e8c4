// SPDX-License-Identifier: Apache-2.0

// Whether the holder of another program's Lease is alive, for a reader that looks at it periodically. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/time.h"
#include "operator/kube/wall_time.h"

namespace ringmaster::kube {

class LeaseView {
 public:
  // Returns whether the holder of the Lease, as it was just read, is alive: it renews the Lease. The first
  // look has only the wall clock to compare with. Where that differs from the holder's, the answer is `no`
  // until the next renewal.
  bool Look(const Json& lease, Time now, WallTime wall) {
    const Json& spec = json::Child(lease, "spec");
    const std::string renewed(json::Text(spec, "renewTime"));
    const Duration life = seconds(std::max<int64_t>(json::Integer(spec, "leaseDurationSeconds"), 1));
    if (renewed != renewed_) {
      const bool first = std::exchange(renewed_, renewed).empty();
      changed_ = now;
      lives_ = !first || IsFresh(renewed, life, wall);
    } else if (now > changed_ + life + kMargin) {
      lives_ = false;
    }
    return lives_ && !json::Text(spec, "holderIdentity").empty();
  }

 private:
  static constexpr Duration kMargin = seconds(5);

  static bool IsFresh(const std::string& renewed, Duration life, WallTime wall) {
    const auto at = ParseWallTime(renewed);
    return at.ok() && wall - *at <= life;
  }

  std::string renewed_;  // as it was written
  Time changed_{};       // when `renewed_` was read for the first time
  bool lives_ = false;
};

}  // namespace ringmaster::kube
