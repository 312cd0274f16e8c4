// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/busy_meter.h"

#include <algorithm>

namespace ringmaster::agent {

std::optional<rendezvous::BusyTime> BusyMeter::Take(SharedPage& page, Time now) {
  const rendezvous::Generation generation = page.generation.load(std::memory_order_relaxed);
  if (generation == generation_ && taken_at_ && now - *taken_at_ < kPeriod) return std::nullopt;
  const int64_t steps = page.busy_steps.load(std::memory_order_acquire);
  if (generation == generation_ && steps == steps_) return std::nullopt;
  const int64_t busy_ns = page.busy_ns.load(std::memory_order_relaxed);
  const int64_t longest_ns = page.longest_ns.exchange(0, std::memory_order_relaxed);
  rendezvous::BusyTime busy;
  busy.generation = generation;
  busy.step = page.step.load(std::memory_order_relaxed);
  busy.steps = steps - steps_;
  const double mean_ns =
      static_cast<double>(busy_ns - busy_ns_) / static_cast<double>(std::max<int64_t>(busy.steps, 1));
  busy.seconds = mean_ns / 1e9;
  busy.longest = static_cast<double>(longest_ns) / 1e9;
  busy.micro_batches = page.micro_batches.load(std::memory_order_relaxed);
  const bool same = generation == generation_;
  taken_at_ = now;
  generation_ = generation;
  steps_ = steps;
  busy_ns_ = busy_ns;
  if (!same) return std::nullopt;
  return busy;
}

}  // namespace ringmaster::agent
