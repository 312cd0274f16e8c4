// SPDX-License-Identifier: Apache-2.0

#include "cli/run/goodput.h"

#include <algorithm>
#include <numeric>

namespace ringmaster::cli {

void Goodput::Add(const rendezvous::StepRecord& record, double now) {
  if (seconds_.empty()) begin_ = now - record.seconds;
  end_ = std::max(end_, now);
  seconds_.push_back(record.seconds);
  samples_.push_back(record.samples);
  total_samples_ += record.samples;
}

double Goodput::MedianSeconds() const {
  if (seconds_.empty()) return 0;
  std::vector<double> sorted = seconds_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double Goodput::Ratio() const {
  if (seconds_.empty()) return 0;
  const double cap = 2 * MedianSeconds();
  double productive = 0;
  for (const double s : seconds_) productive += std::min(s, cap);
  // Records arrive in batches, so the time of receipt can differ slightly from the end of the step.
  const double wall = std::max(end_ - begin_, productive);
  return wall > 0 ? productive / wall : 0;
}

double Goodput::SamplesPerSecond() const {
  if (seconds_.empty()) return 0;
  const double spent = std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
  const double wall = std::max(end_ - begin_, spent);
  return wall > 0 ? static_cast<double>(total_samples_) / wall : 0;
}

double Goodput::RecentSecondsPerStep() const {
  const size_t n = std::min(kRecent, seconds_.size());
  if (n == 0) return 0;
  return std::accumulate(seconds_.end() - static_cast<std::ptrdiff_t>(n), seconds_.end(), 0.0) /
         static_cast<double>(n);
}

double Goodput::RecentSamplesPerSecond() const {
  const size_t n = std::min(kRecent, seconds_.size());
  const double spent = RecentSecondsPerStep() * static_cast<double>(n);
  if (spent <= 0) return 0;
  const auto taken =
      std::accumulate(samples_.end() - static_cast<std::ptrdiff_t>(n), samples_.end(), int64_t{0});
  return static_cast<double>(taken) / spent;
}

}  // namespace ringmaster::cli
