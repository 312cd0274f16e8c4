// SPDX-License-Identifier: Apache-2.0

// BusyMeter reads from the shared page how long a trainer was busy, about once per second, so that the agent
// can add it to a ping. Use a new one for each trainer. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "rendezvous/messages.h"
#include "worker/agent/trainer/shared_page.h"

namespace ringmaster::agent {

class BusyMeter {
 public:
  static constexpr Duration kPeriod = milliseconds(950);  // agents ping more often

  // Returns what the trainer did since the last result; nullopt: no step, or less than kPeriod has passed.
  // Steps of an earlier generation do not count.
  std::optional<rendezvous::BusyTime> Take(SharedPage& page, Time now);

 private:
  std::optional<Time> taken_at_;
  rendezvous::Generation generation_ = 0;
  int64_t steps_ = 0;
  int64_t busy_ns_ = 0;
};

}  // namespace ringmaster::agent
