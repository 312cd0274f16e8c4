// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/hang_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ringmaster::agent {

std::optional<HangWatch::HangReport> HangWatch::Feed(Time now, const Sample& sample) {
  const Duration gap = last_ ? std::clamp(now - *last_, Duration::zero(), kLongestGap) : Duration::zero();
  last_ = now;

  stopped_ = sample.stopped ? stopped_ + gap : Duration::zero();
  if (stopped_ > limits_.stopped) {
    return HangReport{"stopped", fmt::format("the trainer was stopped for {} ms", ToMs(stopped_))};
  }
  // The silence of a stopped trainer is not a hang, and is not learned from.
  if (sample.stopped) return std::nullopt;

  silent_ += gap;
  idle_ += gap;
  const uint64_t beats = sample.heartbeat - previous_.heartbeat;
  // The thread that waits in a collective may be another one than that which computes, so its signs count
  // only while the trainer does nothing else.
  const bool waited = sample.activity == Activity::kExchanging && sample.waits != previous_.waits;
  if (sample.activity != previous_.activity || sample.ready != previous_.ready || beats > 0 || waited) {
    const bool computed_all_along =
        sample.activity == Activity::kComputing && previous_.activity == Activity::kComputing;
    if (computed_all_along && beats > 0) {
      heartbeats_.Add(silent_ / static_cast<int64_t>(beats));
      longest_ = std::max(longest_, silent_);
    }
    if (previous_.ready && previous_.activity == Activity::kDevice && sample.activity != Activity::kDevice)
      device_waits_.Add(silent_);
    silent_ = idle_ = Duration::zero();
    work_.reset();
  }
  if (sample.work) LearnWork(now, *sample.work);
  previous_ = sample;

  const Activity activity = sample.ready ? sample.activity : Activity::kStarting;
  Duration limit{};
  const char* doing = "";
  const bool judges_work = limits_.program && !limits_.step && sample.stepped;
  switch (activity) {
    case Activity::kStarting:
      limit = limits_.startup;
      doing = limits_.program && !sample.ready ? "starting, before it opened libringmaster" : "starting";
      break;
    case Activity::kComputing:
      limit = StepLimit();
      doing = "computing";
      if (judges_work && idle_ <= limit) {
        limit = BusyLimit();
        doing = "computing, though it uses CPU time or moves data";
      }
      break;
    case Activity::kExchanging:
      limit = ExchangeLimit();
      doing = "exchanging";
      break;
    case Activity::kSaving:
      limit = limits_.saving;
      doing = "saving";
      break;
    case Activity::kReading:
      limit = limits_.reading;
      doing = "waiting for training data";
      break;
    case Activity::kDevice:
      limit = DeviceLimit();
      doing = "waiting for the device";
      break;
    case Activity::kWaiting:
      break;
  }
  if (limit == Duration::zero() || silent_ <= limit) return std::nullopt;
  return HangReport{"hang",
                    fmt::format("no sign of progress for {:.1f} s while {} (limit {:.1f} s)",
                                ToSeconds(std::exchange(silent_, Duration::zero())), doing, ToSeconds(limit)),
                    activity == Activity::kExchanging};
}

bool HangWatch::WantsWork(Time now) const {
  return limits_.program && !limits_.step && previous_.stepped &&
         previous_.activity == Activity::kComputing && silent_ >= kWorkAfter &&
         (!work_ || now - work_at_ >= kWorkPeriod);
}

void HangWatch::LearnWork(Time now, const ProcessWork& work) {
  if (work_) {
    const double passed = ToSeconds(now - work_at_);
    // Both decrease when a process has ended: then something happened, too.
    const Duration cpu = work.cpu - work_->cpu;
    const double bytes = static_cast<double>(work.io_bytes) - static_cast<double>(work_->io_bytes);
    if (work.blocked || cpu < Duration::zero() || ToSeconds(cpu) > kIdleShare * passed || bytes < 0 ||
        bytes > kIdleBytes * passed)
      idle_ = Duration::zero();
  }
  work_ = work;
  work_at_ = now;
}

Duration HangWatch::BusyLimit() const {
  if (limits_.startup == Duration::zero() || StepLimit() == Duration::zero()) return Duration::zero();
  return std::max({limits_.startup, 4 * longest_, StepLimit()});
}

Duration HangWatch::StepLimit() const {
  if (limits_.step == Duration::zero()) return Duration::zero();
  if (limits_.program && !previous_.stepped) return limits_.startup;
  if (limits_.step) return *limits_.step;
  // The first layers of a model say little about the last ones.
  if (!previous_.stepped) return limits_.startup;
  const Duration learned = std::max(heartbeats_.Limit(kFloor, kUnlearned), 2 * longest_);
  return limits_.program ? std::max(learned, kProgramFloor) : learned;
}

Duration HangWatch::ExchangeLimit() const {
  if (limits_.step == Duration::zero()) return Duration::zero();
  return std::max(limits_.step.value_or(heartbeats_.Limit(kFloor, kUnlearned)), kExchange);
}

Duration HangWatch::DeviceLimit() const {
  if (StepLimit() == Duration::zero()) return Duration::zero();
  return std::max(StepLimit(), device_waits_.Limit(kDeviceFloor, kDeviceUnlearned));
}

}  // namespace ringmaster::agent
