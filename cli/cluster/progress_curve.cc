// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/progress_curve.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace ringmaster::cli {
namespace {

// Sets a missing value. Returns whether it was missing and is known now.
bool Fill(double value, double* missing) {
  if (!std::isnan(*missing) || std::isnan(value)) return false;
  *missing = value;
  return true;
}

bool FillAll(const ProgressCurve::Point& from, ProgressCurve::Point* to) {
  bool changed = Fill(from.loss, &to->loss);
  changed |= Fill(from.samples_per_second, &to->samples_per_second);
  changed |= Fill(from.goodput, &to->goodput);
  changed |= Fill(from.learning_rate, &to->learning_rate);
  return changed;
}

}  // namespace

void ProgressCurve::Add(const Point& point) {
  const double extreme = std::isfinite(point.loss) ? point.loss : NAN;
  const Entry entry{point, extreme, extreme};
  const auto [at, added] = points_.try_emplace(point.step / stride_, entry);
  if (!added && !Merge(entry, &at->second)) return;
  ++version_;
  if (std::next(at) != points_.end()) ++rewritten_;
  if (points_.size() > kMaxPoints) Thin();
}

// Returns whether that changes `into`.
bool ProgressCurve::Merge(const Entry& entry, Entry* into) {
  // Of a step that arrives again, only values that were missing count.
  if (entry.point.step == into->point.step && !std::isnan(into->point.loss))
    return FillAll(entry.point, &into->point);
  bool changed = entry.point.step > into->point.step;
  const Point older = changed ? std::exchange(into->point, entry.point) : entry.point;
  changed |= FillAll(older, &into->point);
  changed |= std::fmin(into->low, entry.low) < into->low || std::fmax(into->high, entry.high) > into->high;
  into->low = std::fmin(into->low, entry.low);
  into->high = std::fmax(into->high, entry.high);
  return changed;
}

void ProgressCurve::Thin() {
  ++rewritten_;
  while (points_.size() > kMaxPoints && stride_ < kMaxStride) {
    stride_ *= 2;
    Points thinned;
    for (const auto& [bucket, entry] : points_) {
      const auto [at, added] = thinned.try_emplace(entry.point.step / stride_, entry);
      if (!added) Merge(entry, &at->second);
    }
    points_ = std::move(thinned);
  }
}

void ProgressCurve::AddValidation(int64_t step, double loss) {
  validations_.try_emplace(step, loss);
  if (validations_.size() <= kMaxValidations) return;
  // Every second one goes, and the newest stays.
  for (auto it = validations_.begin(); it != validations_.end() && std::next(it) != validations_.end();)
    it = std::next(validations_.erase(it));
}

void ProgressCurve::Clear() {
  const uint64_t version = version_, rewritten = rewritten_;
  *this = ProgressCurve();
  version_ = version + 1;
  rewritten_ = rewritten + 1;
}

std::string ProgressCurve::Json(size_t first) const {
  first = std::min(first, points_.size());
  return Json(std::next(points_.begin(), static_cast<std::ptrdiff_t>(first)), points_.end(), first);
}

std::string ProgressCurve::JsonOfRange(int64_t from_step, int64_t to_step) const {
  auto first = points_.begin();
  while (first != points_.end() && first->second.point.step < from_step) ++first;
  auto last = first;
  while (last != points_.end() && last->second.point.step <= to_step) ++last;
  return Json(first, last, static_cast<size_t>(std::distance(points_.begin(), first)));
}

std::string ProgressCurve::Json(Points::const_iterator first, Points::const_iterator last,
                                size_t from) const {
  const auto column = [&](auto value) {
    std::string text = "[";
    for (auto it = first; it != last; ++it) {
      const double number = value(it);
      if (text.size() > 1) text += ',';
      text += std::isfinite(number) ? fmt::format("{:.7g}", number) : "null";
    }
    return text + "]";
  };
  // Values of a log and of a status alternate: a line through them has no gaps.
  const auto carried = [&](double Point::*member) {
    double value = NAN;
    for (auto it = first; std::isnan(value) && it != points_.begin();) value = (--it)->second.point.*member;
    return [member, value](Points::const_iterator it) mutable {
      const double own = it->second.point.*member;
      return value = std::isnan(own) ? value : own;
    };
  };
  const auto own = [](double Point::*member) {
    return [member](Points::const_iterator it) { return it->second.point.*member; };
  };
  std::string steps = "[";
  for (auto it = first; it != last; ++it)
    steps += (it != first ? "," : "") + std::to_string(it->second.point.step);
  return fmt::format(
      R"({{"stride":{},"from":{},"step":{}],"loss":{},"low":{},"high":{},"lr":{},"rate":{},"goodput":{}}})",
      stride_, from, steps, column(own(&Point::loss)),
      column([](Points::const_iterator it) { return it->second.low; }),
      column([](Points::const_iterator it) { return it->second.high; }),
      column(carried(&Point::learning_rate)), column(own(&Point::samples_per_second)),
      column(carried(&Point::goodput)));
}

std::vector<double> ProgressCurve::Losses() const {
  std::vector<double> losses;
  for (const auto& [bucket, entry] : points_) losses.push_back(entry.point.loss);
  return losses;
}

Json ProgressCurve::Validations() const {
  if (validations_.empty()) return {};
  ringmaster::Json steps = ringmaster::Json::array(), losses = ringmaster::Json::array();
  for (const auto& [step, loss] : validations_) {
    steps.push_back(step);
    losses.push_back(loss);
  }
  return {{"step", std::move(steps)}, {"loss", std::move(losses)}};
}

}  // namespace ringmaster::cli
