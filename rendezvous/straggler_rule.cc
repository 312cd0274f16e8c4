// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/straggler_rule.h"

#include <utility>

namespace ringmaster::rendezvous {
namespace {

double PerMicroBatch(const RankBusyTime& rank) { return rank.seconds / rank.micro_batches; }

}  // namespace

std::vector<StragglerRule::Change> StragglerRule::Add(const std::vector<RankBusyTime>& window) {
  std::vector<double> steps;
  std::vector<double> micro_batches;
  for (const RankBusyTime& rank : window) {
    if (rank.steps == 0) continue;
    steps.push_back(rank.seconds);
    micro_batches.push_back(PerMicroBatch(rank));
  }
  std::vector<Change> changes;
  if (steps.size() < 2) return changes;
  const double step = LowerMedian(std::move(steps));
  const double micro_batch = LowerMedian(std::move(micro_batches));
  for (size_t i = 0; i < window.size(); ++i) {
    if (window[i].steps == 0) continue;
    Rank& rank = ranks_[i];
    const bool slow = window[i].seconds > kFactor * step && PerMicroBatch(window[i]) > kFactor * micro_batch;
    rank.against = slow == rank.straggler ? 0 : rank.against + 1;
    if (rank.against < kWindows) continue;
    rank = {slow, 0};
    changes.push_back({i, slow, step > 0 ? window[i].seconds / step : 0});
  }
  return changes;
}

}  // namespace ringmaster::rendezvous
