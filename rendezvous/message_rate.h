// SPDX-License-Identifier: Apache-2.0

// MessageRate limits how many messages of one connection are handled: a burst, then a steady rate. A
// connection above it is read later; it loses nothing. Not thread-safe.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace ringmaster::rendezvous {

class MessageRate {
 public:
  MessageRate(double per_second, double burst) : per_second_(per_second), burst_(burst), left_(burst) {}

  void Spend(Time now) {
    Refill(now);
    left_ -= 1;
  }
  // Returns how long to wait before the next message; zero: none.
  Duration Wait(Time now) {
    Refill(now);
    if (left_ >= 0) return Duration::zero();
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(-left_ / per_second_)) +
           milliseconds(1);
  }

 private:
  void Refill(Time now) {
    if (now > filled_at_) left_ = std::min(burst_, left_ + per_second_ * ToSeconds(now - filled_at_));
    filled_at_ = std::max(filled_at_, now);
  }

  const double per_second_;
  const double burst_;
  double left_;
  Time filled_at_{};
};

}  // namespace ringmaster::rendezvous
