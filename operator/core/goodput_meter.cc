// SPDX-License-Identifier: Apache-2.0

#include "operator/core/goodput_meter.h"

#include <algorithm>

namespace ringmaster::core {

void GoodputMeter::Add(int64_t kept_samples, Time now) {
  // Another coordinator, which counts from zero.
  if (!points_.empty() && kept_samples < points_.back().kept) Reset();
  if (points_.empty()) {
    if (kept_samples <= 0) return;
    began_ = now;
  }
  const size_t size = points_.size();
  if (size >= 2 && now - points_[size - 2].at < kSpacing) points_.pop_back();
  points_.push_back({now, kept_samples});
  while (points_.size() >= 2 && points_[1].at <= now - kWindow) points_.pop_front();
}

std::optional<double> GoodputMeter::SamplesPerSecond(Time now) const {
  if (points_.empty() || now - began_ < kLeast) return std::nullopt;
  const Time from = std::max(began_, now - kWindow);
  int64_t before = points_.front().kept;
  for (const Point& point : points_) {
    if (point.at > from) break;
    before = point.kept;
  }
  return static_cast<double>(points_.back().kept - before) / ToSeconds(now - from);
}

}  // namespace ringmaster::core
