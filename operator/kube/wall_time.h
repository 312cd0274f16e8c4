// SPDX-License-Identifier: Apache-2.0

// Wall-clock times in the API's formats. The cores decide by a steady clock (base/time.h); wall times are for
// display and for other processes. WallClock relates the two once per process, so that setting the system
// clock does not affect decisions, and corrects this by the API server's clock, so that a process that starts
// before its machine knows the time decides as others do.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace ringmaster::kube {

using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

inline WallTime WallNow() {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

// Returns "2026-11-21T09:05:00.123456Z": RFC 3339 with microseconds, the API's MicroTime.
std::string WallTimeText(WallTime time);
// Returns "2026-11-21T09:05:00Z": the API's Time, as in conditions.
std::string WallSecondsText(WallTime time);
// Parses both forms, with up to nine decimals, `Z` or an offset. kInvalid contains the text.
Result<WallTime> ParseWallTime(std::string_view text);

// Parses the Date header of HTTP: "Sun, 06 Nov 1994 08:49:37 GMT".
std::optional<WallTime> ParseHttpDate(std::string_view text);

// Thread-safe. Copies share the corrections.
class WallClock {
 public:
  WallClock() = default;
  WallClock(Time steady, WallTime wall) : steady_(steady), wall_(wall) {}
  WallTime ToWall(Time time) const {
    return wall_ + Ahead() + std::chrono::duration_cast<std::chrono::microseconds>(time - steady_);
  }
  Time ToSteady(WallTime time) const { return steady_ + (time - wall_ - Ahead()); }
  // The API server's clock shows `server`, in whole seconds, at `now`. Small differences change nothing.
  // Returns whether the clock was corrected.
  bool Correct(WallTime server, Time now) const;

 private:
  std::chrono::microseconds Ahead() const { return std::chrono::microseconds(ahead_->load()); }

  Time steady_{};
  WallTime wall_{};
  // How far the API server's clock is ahead.
  std::shared_ptr<std::atomic<int64_t>> ahead_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace ringmaster::kube
