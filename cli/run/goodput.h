// SPDX-License-Identifier: Apache-2.0

// The goodput and the speed of a run.
//
// goodput = sum over this run's committed steps of min(seconds, 2 x median) / wall time since the first step
// began. A step that took longer than twice the median (because of a recovery or a stopped worker) counts as
// twice the median, so goodput shows the cost of failures. All times are seconds of one clock. Pure; not
// thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "rendezvous/messages.h"

namespace ringmaster::cli {

class Goodput {
 public:
  // `now` is when the record was received. REQUIRES: steps increase.
  void Add(const rendezvous::StepRecord& record, double now);

  double Ratio() const;             // 0 without steps, at most 1
  double SamplesPerSecond() const;  // over the whole run
  // Over the newest steps, for the progress line.
  double RecentSamplesPerSecond() const;
  double RecentSecondsPerStep() const;
  double MedianSeconds() const;

 private:
  static constexpr size_t kRecent = 30;
  std::vector<double> seconds_;
  std::vector<int64_t> samples_;
  int64_t total_samples_ = 0;
  double begin_ = 0;
  double end_ = 0;
};

}  // namespace ringmaster::cli
