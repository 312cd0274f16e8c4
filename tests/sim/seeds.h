// SPDX-License-Identifier: Apache-2.0

// The seeds that the simulators play on a day.
#pragma once

#include <chrono>
#include <cstdint>

namespace ringmaster::sim {

// Returns a first seed above 1,000,000 that differs every day (UTC). Days do not overlap while they play
// equally many seeds. REQUIRES: seeds > 0.
inline uint64_t FirstSeedOfToday(uint64_t seeds) {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const auto days = std::chrono::floor<std::chrono::days>(since_epoch).count();
  return 1'000'001 + static_cast<uint64_t>(days) * seeds;
}

}  // namespace ringmaster::sim
