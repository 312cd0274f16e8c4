// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/progress_curve.h"

#include <fmt/format.h>

#include <cmath>

namespace ringmaster::cli {

void ProgressCurve::Add(const Point& point) {
  if (point.step <= newest_) return;
  newest_ = point.step;
  if (++skipped_ < stride_) return;
  skipped_ = 0;
  points_.push_back(point);
  if (points_.size() <= kMaxPoints) return;
  for (size_t i = 0; 2 * i + 1 < points_.size(); ++i) points_[i] = points_[2 * i + 1];
  points_.resize(points_.size() / 2);
  stride_ *= 2;
}

void ProgressCurve::Clear() { *this = ProgressCurve(); }

std::string ProgressCurve::Json(size_t first) const { return Json(first, points_.size()); }

std::string ProgressCurve::JsonOfRange(int64_t from_step, int64_t to_step) const {
  size_t first = 0;
  while (first < points_.size() && points_[first].step < from_step) ++first;
  size_t last = first;
  while (last < points_.size() && points_[last].step <= to_step) ++last;
  return Json(first, last);
}

std::string ProgressCurve::Json(size_t first, size_t last) const {
  const auto column = [&](auto value) {
    std::string text = "[";
    for (size_t i = first; i < last; ++i) {
      const double number = value(points_[i]);
      if (text.size() > 1) text += ',';
      text += std::isfinite(number) ? fmt::format("{:.7g}", number) : "null";
    }
    return text + "]";
  };
  std::string steps = "[";
  for (size_t i = first; i < last; ++i) steps += (i > first ? "," : "") + std::to_string(points_[i].step);
  const std::string loss = column([](const Point& point) { return point.loss; });
  return fmt::format(
      R"({{"stride":{},"from":{},"step":{}],"loss":{},"low":{},"high":{},"lr":{},"rate":{},"goodput":{}}})",
      stride_, first, steps, loss, loss, loss, column([](const Point&) { return NAN; }),
      column([](const Point& point) { return point.samples_per_second; }),
      column([](const Point& point) { return point.goodput; }));
}

}  // namespace ringmaster::cli
