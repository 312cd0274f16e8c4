// SPDX-License-Identifier: Apache-2.0

// Tells a trainer that hangs from one that works, waits or writes. Pure: samples in, a verdict out.
//
// Time is counted in what was observed: a gap between two samples counts for at most kLongestGap, so an agent
// that was itself stopped or starved does not blame its trainer for the time it did not look.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "worker/agent/shared_page.h"

namespace ringmaster::agent {

struct HangLimits {
  Duration startup = seconds(1800);  // zero: no limit
  std::optional<Duration> step{};    // nullopt: learned from the trainer; zero: hangs are not looked for
  Duration saving = seconds(600);
  Duration stopped = milliseconds(150);
};

class HangWatch {
 public:
  static constexpr Duration kLongestGap = milliseconds(60);
  // What is learned: kFactor times the median gap between heartbeats, never less than kFloor, and
  // kUnlearned while there is nothing to learn from.
  static constexpr int kFactor = 20;
  static constexpr Duration kFloor = seconds(10);
  static constexpr Duration kUnlearned = seconds(60);
  // Who exchanges with a peer that is gone is told so by the coordinator. Should that be gone as well, a new
  // one must first be elected and hear from everybody: killing the survivors meanwhile would lose what they
  // hold.
  static constexpr Duration kExchange = seconds(120);

  struct Sample {
    bool ready = false;  // the trainer has attached to its slot
    Activity activity = Activity::kStarting;
    uint64_t heartbeat = 0;
    bool stopped = false;  // by a signal or a tracer
  };
  struct HangReport {
    std::string evidence;  // "hang" or "stopped", as in rendezvous::Down
    std::string message;
  };

  explicit HangWatch(HangLimits limits) : limits_(limits) {}

  // About every 20 ms from the start of the trainer. After a verdict: kill it, and use a new HangWatch.
  std::optional<HangReport> Feed(Time now, const Sample& sample);

  // The limit that holds for the time between two heartbeats now; zero: none.
  Duration StepLimit() const;

 private:
  void Learn(Duration interval);

  HangLimits limits_;
  std::optional<Time> last_;
  Sample previous_;
  Duration silent_{};                     // since the last change of activity or heartbeat
  Duration stopped_{};                    // in a row
  std::array<Duration, 63> intervals_{};  // a ring of the newest
  size_t learned_ = 0;
};

}  // namespace ringmaster::agent
