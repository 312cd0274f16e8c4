// SPDX-License-Identifier: Apache-2.0

// Collects the busy times (messages.h) that the members of a generation report, in windows of about a second.
// Values and pure functions of the time; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

// What a window says about one rank.
struct RankBusyTime {
  int64_t steps = 0;   // 0: it has not reported
  double seconds = 0;  // mean of a step
  double longest = 0;
  int32_t micro_batches = 0;
  bool straggler = false;  // straggler_rule.h
  bool operator==(const RankBusyTime&) const = default;
};

struct GangBusyTimes {
  Generation generation = 0;
  int64_t step = 0;                                      // the newest step of the window
  std::shared_ptr<const std::vector<std::string>> pods;  // by rank; the same pointer in all of a generation
  std::vector<RankBusyTime> ranks;
};

// Returns the median, of an even number of values the lower one of the middle two. REQUIRES: `values` is not
// empty.
double LowerMedian(std::vector<double> values);

// Returns the busy time per step of the slowest rank, divided by the median of the ranks; nullopt when fewer
// than two have reported.
std::optional<double> ImbalanceOf(const GangBusyTimes& times);

class BusyWindow {
 public:
  // A window ends when each rank has reported, but it lasts at least kLeast and at most kLongest: a rank may
  // run an earlier build, or compute nothing yet.
  static constexpr Duration kLeast = seconds(1);
  static constexpr Duration kLongest = seconds(3);

  BusyWindow() : BusyWindow(0, {}) {}
  // `pods`: of the members, by rank.
  BusyWindow(Generation generation, std::vector<std::string> pods);

  // Ignores numbers that no trainer can have measured. REQUIRES: `rank` is a member.
  void Add(size_t rank, const BusyTime& busy);
  // Ends the window if that is due. Returns nullopt otherwise, and when no rank has reported.
  std::optional<GangBusyTimes> Close(Time now);

 private:
  GangBusyTimes times_;
  size_t reported_ = 0;  // ranks
  std::optional<Time> began_;
};

}  // namespace ringmaster::rendezvous
