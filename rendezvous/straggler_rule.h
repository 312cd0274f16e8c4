// SPDX-License-Identifier: Apache-2.0

// StragglerRule decides which ranks of a generation are stragglers: slow members for which the others wait in
// each step. Pure; not thread-safe.
//
// The rule. In a window of about a second (busy_times.h), a rank is slow when its busy time exceeds the
// median of the gang by kFactor both per step and per micro-batch. The second condition excuses a rank that
// owns more micro-batches than others; the first one a rank that owns fewer, so that its fixed costs weigh
// more. The median of an even number of ranks is the lower one of the middle two. A rank that is slow in
// kWindows consecutive windows is a straggler, until it is not slow in kWindows consecutive windows.
#pragma once

#include <cstddef>
#include <vector>

#include "rendezvous/busy_times.h"

namespace ringmaster::rendezvous {

class StragglerRule {
 public:
  static constexpr double kFactor = 1.2;
  static constexpr int kWindows = 3;

  struct Change {
    size_t rank = 0;
    bool straggler = false;  // it has become one, or is none any more
    double ratio = 0;        // its busy time per step, divided by the median
    bool operator==(const Change&) const = default;
  };

  explicit StragglerRule(size_t ranks = 0) : ranks_(ranks) {}

  // Adds a window and returns what it changes. A rank that has not reported stays what it is. REQUIRES:
  // `window` has a member for each rank.
  std::vector<Change> Add(const std::vector<RankBusyTime>& window);
  bool IsStraggler(size_t rank) const { return ranks_[rank].straggler; }

 private:
  struct Rank {
    bool straggler = false;
    int against = 0;  // consecutive windows that contradict `straggler`
  };
  std::vector<Rank> ranks_;
};

}  // namespace ringmaster::rendezvous
