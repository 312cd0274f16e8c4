// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/program_hang_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ringmaster::agent {
namespace {

constexpr Duration kShortestInterval = milliseconds(100);
constexpr Duration kLongestInterval = seconds(2);
constexpr Duration kLongestSlot = seconds(10);
constexpr int kCountedIntervals = 2;  // of a longer gap

std::string SpanText(Duration span) {
  constexpr int kSecondsPerMinute = 60;
  const double count = ToSeconds(span);
  if (span < seconds(2 * kSecondsPerMinute)) return fmt::format("{:.3g} s", count);
  return fmt::format("{:.0f} min", count / kSecondsPerMinute);
}

// Several samples fit into each limit.
Duration IntervalFor(const ProgramHangLimits& limits) {
  constexpr int kSamples = 8;
  Duration interval = kLongestInterval;
  for (const Duration limit : {limits.step.value_or(Duration::zero()), limits.silence})
    if (limit > Duration::zero()) interval = std::min(interval, limit / kSamples);
  return std::max(interval, kShortestInterval);
}

}  // namespace

ProgramHangLimits LimitsOfRole(ProgramHangLimits limits, std::string_view role) {
  if (role == "ps" || role == "evaluator") limits.step = limits.silence = Duration::zero();
  if (role == "launcher") limits.silence = Duration::zero();
  return limits;
}

ProgramHangWatch::ProgramHangWatch(ProgramHangLimits limits)
    : limits_(limits),
      interval_(IntervalFor(limits)),
      slot_length_(std::clamp(limits.silence / 4, interval_, kLongestSlot)) {}

std::optional<std::string> ProgramHangWatch::Feed(Time now, const Sample& sample) {
  const Duration gap =
      last_ ? std::clamp(now - *last_, Duration::zero(), kCountedIntervals * interval_) : Duration::zero();
  last_ = now;
  stopped_ = sample.stopped && previous_.stopped ? stopped_ + gap : Duration::zero();
  previous_.stopped = sample.stopped;
  if (stopped_ > limits_.stopped)
    return fmt::format("one of its processes was stopped for {}", SpanText(stopped_));
  // The silence of a stopped program is not a hang, and is not learned from.
  if (sample.stopped) return std::nullopt;

  for (Duration* span : {&since_report_, &quiet_, &idle_, &slot_}) *span += gap;
  if (const uint64_t reports = sample.reports - previous_.reports; reports > 0) {
    if (previous_.reports > 0) reports_.Add(since_report_ / static_cast<int64_t>(reports));
    since_report_ = quiet_ = Duration::zero();
  }
  if (sample.output != previous_.output) quiet_ = Duration::zero();
  previous_ = sample;
  if (auto hang = CheckSteps(sample.finished)) return hang;
  return CheckSilence(sample);
}

std::optional<std::string> ProgramHangWatch::CheckSteps(bool finished) const {
  if (previous_.reports == 0 || finished) return std::nullopt;
  const Duration limit = limits_.step ? *limits_.step : reports_.Limit(kFloor, Duration::zero());
  if (limit == Duration::zero()) return std::nullopt;
  if (limits_.step && since_report_ > limit)
    return fmt::format("no progress for {}, health.stepSeconds = {:.0f}", SpanText(since_report_),
                       ToSeconds(limit));
  if (!limits_.step && std::min(since_report_, quiet_) > limit)
    return fmt::format("no progress for {} and no output for {} (limit {}, learned from its steps)",
                       SpanText(since_report_), SpanText(quiet_), SpanText(limit));
  return std::nullopt;
}

// Decides only at the end of a slot: before it, the CPU time of the slot is not known.
std::optional<std::string> ProgramHangWatch::CheckSilence(const Sample& sample) {
  if (slot_ < slot_length_) return std::nullopt;
  const Duration used = sample.cpu - std::exchange(slot_cpu_, sample.cpu);
  const Duration slot = std::exchange(slot_, Duration::zero());
  // It decreases when a process that was collected has ended: then something happened, too.
  if (used < Duration::zero() || ToSeconds(used) > ToSeconds(slot) * kIdleShare) idle_ = Duration::zero();
  if (limits_.silence == Duration::zero() || std::min(quiet_, idle_) <= limits_.silence) return std::nullopt;
  return fmt::format("no output and no CPU time for {}, launch.silenceSeconds = {:.0f}",
                     SpanText(std::min(quiet_, idle_)), ToSeconds(limits_.silence));
}

}  // namespace ringmaster::agent
