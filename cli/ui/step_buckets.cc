// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/step_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace ringmaster::cli {
namespace {

constexpr size_t kRecentSteps = 30;

void AppendNumber(std::string& column, double value) {
  if (column.size() > 1) column += ',';
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(column), "{:.7g}", value);
  else
    column += "null";
}

}  // namespace

size_t StepBuckets::StrideFor(size_t count) {
  size_t stride = 1;
  while (count > stride * kMaxBuckets) stride *= 2;
  return stride;
}

void StepBuckets::Clear() { *this = StepBuckets(); }

void StepBuckets::Add(std::vector<rendezvous::StepRecord> records) {
  const size_t first = steps_.size();
  steps_.insert(steps_.end(), std::make_move_iterator(records.begin()),
                std::make_move_iterator(records.end()));
  // The median of many steps hardly changes with a few more.
  const bool renew = steps_.size() < 1000 || steps_.size() > median_of_ + median_of_ / 50;
  if (renew && !steps_.empty()) {
    std::vector<double> all;
    all.reserve(steps_.size());
    for (const rendezvous::StepRecord& step : steps_) all.push_back(step.seconds);
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    median_ = *middle;
    median_of_ = steps_.size();
  }
  CountUseful(renew ? 0 : first);
}

void StepBuckets::SetGenerations(std::map<rendezvous::Generation, double> formed, int64_t resumed_from) {
  formed_ = std::move(formed);
  resumed_from_ = resumed_from;
  CountUseful(0);
}

void StepBuckets::CountUseful(size_t first) {
  elapsed_.resize(steps_.size());
  useful_.resize(steps_.size());
  for (size_t i = first; i < steps_.size(); ++i) {
    const rendezvous::StepRecord& step = steps_[i];
    useful_[i] = (i == 0 ? 0 : useful_[i - 1]) + std::min(step.seconds, 2 * median_);
    elapsed_[i] = (i == 0 ? 0 : elapsed_[i - 1]) + step.seconds;
    if (i == 0 || steps_[i - 1].step <= resumed_from_ || step.generation == steps_[i - 1].generation)
      continue;
    // The time between two generations is in no step: add it.
    const auto before = formed_.find(steps_[i - 1].generation);
    const auto after = formed_.find(step.generation);
    if (before == formed_.end() || after == formed_.end()) continue;
    size_t begin = i;  // of the generation before
    double in_steps = 0;
    while (begin > 0 && steps_[begin - 1].generation == steps_[i - 1].generation)
      in_steps += steps_[--begin].seconds;
    elapsed_[i] += std::max(0.0, after->second - before->second - in_steps);
  }
}

double StepBuckets::Goodput() const {
  return elapsed_.empty() || elapsed_.back() <= 0 ? 0 : useful_.back() / elapsed_.back();
}

double StepBuckets::SamplesPerSecond() const {
  if (steps_.empty()) return 0;
  const size_t first = steps_.size() - std::min(steps_.size(), kRecentSteps);
  int64_t samples = 0;
  double time = 0;
  for (size_t i = first; i < steps_.size(); ++i) {
    samples += steps_[i].samples;
    time += steps_[i].seconds;
  }
  return time > 0 ? static_cast<double>(samples) / time : 0;
}

std::string StepBuckets::Json(size_t first, size_t stride) const {
  return Json(first / stride * stride, steps_.size(), stride);
}

std::string StepBuckets::JsonOfRange(int64_t from_step, int64_t to_step) const {
  const auto at = [&](int64_t step) {
    return static_cast<size_t>(
        std::lower_bound(steps_.begin(), steps_.end(), step,
                         [](const rendezvous::StepRecord& one, int64_t other) { return one.step < other; }) -
        steps_.begin());
  };
  const size_t first = at(from_step);
  const size_t last = to_step < from_step ? first : std::min(at(to_step) + 1, steps_.size());
  return Json(first, last, StrideFor(last - first));
}

std::string StepBuckets::Json(size_t first, size_t last, size_t stride) const {
  std::string step = "[", loss = "[", low = "[", high = "[", lr = "[", rate = "[", goodput = "[";
  for (size_t begin = first; begin < last; begin += stride) {
    const size_t end = std::min(begin + stride, last);
    double sum = 0, least = INFINITY, most = -INFINITY, seconds = 0;
    int64_t samples = 0;
    for (size_t i = begin; i < end; ++i) {
      const rendezvous::StepRecord& record = steps_[i];
      sum += record.loss;
      if (std::isfinite(record.loss)) {
        least = std::min(least, record.loss);
        most = std::max(most, record.loss);
      }
      seconds += record.seconds;
      samples += record.samples;
    }
    if (step.size() > 1) step += ',';
    step += std::to_string(steps_[end - 1].step);
    AppendNumber(loss, sum / static_cast<double>(end - begin));
    AppendNumber(low, least);
    AppendNumber(high, most);
    AppendNumber(lr, steps_[end - 1].learning_rate);
    AppendNumber(rate, seconds > 0 ? static_cast<double>(samples) / seconds : NAN);
    AppendNumber(goodput, elapsed_[end - 1] > 0 ? useful_[end - 1] / elapsed_[end - 1] : NAN);
  }
  return fmt::format(
      R"({{"stride":{},"from":{},"step":{}],"loss":{}],"low":{}],"high":{}],"lr":{}],"rate":{}],"goodput":{}]}})",
      stride, first / stride, step, loss, low, high, lr, rate, goodput);
}

}  // namespace ringmaster::cli
