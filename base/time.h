// SPDX-License-Identifier: Apache-2.0

// Monotonic time. Pure code takes `Time now` as an argument; only the code around it (the event loops) calls
// Now().
#pragma once

#include <chrono>
#include <cstdint>

namespace ringmaster {

using Duration = std::chrono::nanoseconds;
using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr Time kNever = Time::max();

inline Time Now() { return std::chrono::steady_clock::now(); }

inline double ToSeconds(Duration d) { return std::chrono::duration<double>(d).count(); }
inline int64_t ToMs(Duration d) { return std::chrono::duration_cast<milliseconds>(d).count(); }

}  // namespace ringmaster
