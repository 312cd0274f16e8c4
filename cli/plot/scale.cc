// SPDX-License-Identifier: Apache-2.0

#include "cli/plot/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ringmaster::cli {

std::vector<double> TicksOf(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= 2 * count + 2; ++i) {
    const double tick = (first + i) * step;
    if (tick > high + step * 1e-9) break;
    ticks.push_back(tick);
  }
  return ticks;
}

std::vector<double> LogTicksOf(double low, double high) {
  std::vector<double> ticks;
  for (double decade = std::floor(std::log10(low)); decade <= std::log10(high); ++decade) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, decade);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::string TickLabel(double value) {
  if (value == 0) return "0";
  if (std::abs(value) < 1e-4 || std::abs(value) >= 1e12) return fmt::format("{:.4g}", value);
  std::string text = fmt::format("{:.10g}", value);
  if (text.find_first_of("e.") != std::string::npos) return text;
  const size_t sign = text.starts_with('-') ? 1 : 0;
  for (size_t i = text.size(); i > sign + 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::string TimeLabel(double seconds) {
  if (seconds < 0.0995) return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.00995 ? 1 : 0);
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

Range LossRange(const std::vector<const std::vector<rendezvous::StepRecord>*>& curves) {
  Range range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const auto* curve : curves) {
    for (const rendezvous::StepRecord& step : *curve) {
      if (!std::isfinite(step.loss)) continue;
      range.low = std::min(range.low, step.loss);
      range.high = std::max(range.high, step.loss);
    }
  }
  if (range.low > range.high) return {0, 1};
  if (range.high - range.low < 1e-12 * std::max(1.0, std::abs(range.high))) {
    const double room = std::max(1e-3, 0.1 * std::abs(range.high));
    return {range.low - room, range.high + room};
  }
  return range;
}

std::vector<Column> Downsample(const std::vector<rendezvous::StepRecord>& steps, int64_t begin, int64_t end,
                               int columns) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::vector<Column> result;
  int newest = -1;
  const double width = static_cast<double>(std::max<int64_t>(1, end - begin + 1));
  for (const rendezvous::StepRecord& step : steps) {
    if (step.step < begin || step.step > end) continue;
    const int index = static_cast<int>(static_cast<double>(step.step - begin) / width * columns);
    if (index != newest) result.push_back({step.step, kNone, kNone, kNone, kNone});
    newest = index;
    if (!std::isfinite(step.loss)) continue;
    Column& column = result.back();
    if (std::isnan(column.first)) column.first = column.low = column.high = step.loss;
    column.low = std::min(column.low, step.loss);
    column.high = std::max(column.high, step.loss);
    column.last = step.loss;
  }
  return result;
}

}  // namespace ringmaster::cli
