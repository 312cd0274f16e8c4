// SPDX-License-Identifier: Apache-2.0

// Wall-clock times as the API writes them. The cores decide by a steady clock (base/time.h); a wall time is
// for people, and for what must be understood by another process. WallClock ties the two together once per
// process, so that a clock that is set while we run moves no decision.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace ringmaster::kube {

using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

inline WallTime WallNow() {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

// "2026-11-21T09:05:00.123456Z": RFC 3339 with microseconds, the API's MicroTime.
std::string WallTimeText(WallTime time);
// "2026-11-21T09:05:00Z": the API's Time, which conditions carry.
std::string WallSecondsText(WallTime time);
// Both forms, any number of decimals up to nine, `Z` or an offset. kInvalid says what was read.
Result<WallTime> ParseWallTime(std::string_view text);

class WallClock {
 public:
  WallClock() = default;
  WallClock(Time steady, WallTime wall) : steady_(steady), wall_(wall) {}
  WallTime ToWall(Time time) const {
    return wall_ + std::chrono::duration_cast<std::chrono::microseconds>(time - steady_);
  }
  Time ToSteady(WallTime time) const { return steady_ + (time - wall_); }

 private:
  Time steady_{};
  WallTime wall_{};
};

}  // namespace ringmaster::kube
