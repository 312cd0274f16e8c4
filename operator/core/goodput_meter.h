// SPDX-License-Identifier: Apache-2.0

// The goodput of a job, in samples: how many it kept, per second of wall time.
//
//   goodput(t) = (kept(t) - kept(f)) / (t - f),   f = max(t - kWindow, first report of a kept step)
//
// kept(t) is Report::kept_samples. A step that is done again adds nothing to it, and neither does a pause: a
// restart, a wait for nodes or for members. Both still count as time. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/time.h"

namespace ringmaster::core {

class GoodputMeter {
 public:
  static constexpr Duration kWindow = seconds(60);
  static constexpr Duration kLeast = seconds(10);  // a shorter time says little

  // `kept_samples`: of the newest report. REQUIRES: `now` does not decrease.
  void Add(int64_t kept_samples, Time now);
  // Forgets all reports: the job has stopped or ended.
  void Reset() { points_.clear(); }
  // Returns nullopt until the first kept step is kLeast ago.
  std::optional<double> SamplesPerSecond(Time now) const;

 private:
  static constexpr Duration kSpacing = seconds(1);

  struct Point {
    Time at;
    int64_t kept = 0;
  };
  Time began_{};
  std::deque<Point> points_;  // about kSpacing apart; the last one is the newest report
};

}  // namespace ringmaster::core
