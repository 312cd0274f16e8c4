// SPDX-License-Identifier: Apache-2.0

// HangWatch distinguishes a hanging trainer from one that computes, waits or writes. A pure state machine: it
// takes samples and reports a hang. Not thread-safe.
//
// Only observed time counts: a gap between two samples counts as at most kLongestGap, so an agent that was
// suspended or starved does not blame its trainer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "worker/agent/shell/intervals.h"
#include "worker/agent/shell/process_tree.h"
#include "worker/agent/trainer/shared_page.h"

namespace ringmaster::agent {

struct HangLimits {
  Duration startup = seconds(1800);  // zero: no limit
  std::optional<Duration> step{};    // nullopt: learned from the trainer; zero: no hang detection
  Duration saving = seconds(600);
  Duration reading = seconds(600);  // of training data
  Duration stopped = milliseconds(150);

  // The trainer is a program of a user. It shows progress only where it calls the library, and compiles
  // kernels in its first micro-batches: until it has committed a step, `startup` is the limit for computing,
  // too, whatever `step` is.
  bool program = false;
  // For `stopped` of a program: a profiler may stop it for a moment.
  static constexpr Duration kProgramStopped = seconds(1);
};

class HangWatch {
 public:
  static constexpr Duration kLongestGap = milliseconds(60);
  // The limit that is learned from the intervals between heartbeats is at least kFloor and twice the longest
  // interval, and kUnlearned before the first one. It holds from the first committed step on, since the
  // layers of a model differ; until then the limit is HangLimits::startup.
  static constexpr Duration kFloor = seconds(10);
  static constexpr Duration kUnlearned = seconds(60);
  // The same of a program: a new shape of data compiles kernels again. A program that uses CPU time or moves
  // data between two heartbeats evaluates or loads, and the limit counts only from then on.
  // HangLimits::startup or four times the longest interval bounds that: a program may also spin for ever.
  static constexpr Duration kProgramFloor = seconds(300);
  // What a program uses while it does nothing, such as threads that poll or report: this share of a CPU, and
  // these bytes per second.
  static constexpr double kIdleShare = 0.02;
  static constexpr double kIdleBytes = 256 << 10;
  // From when on, and how often, to look at what a silent program does.
  static constexpr Duration kWorkAfter = seconds(10);
  static constexpr Duration kWorkPeriod = seconds(5);
  // The least limit inside a collective, without a sign that its wait is alive (Sample::waits). It ends no
  // trainer: if its peer has died and the coordinator is away, its state is needed later. The coordinator
  // learns of the failed operation; a trainer that does not answer its Prepare hangs.
  static constexpr Duration kExchange = seconds(120);
  // The limit that is learned from waits for the device is at least kDeviceFloor, and kDeviceUnlearned before
  // the first of them has ended: a device may be given many micro-batches before the host waits, and its
  // queue says nothing about progress.
  static constexpr Duration kDeviceFloor = seconds(60);
  static constexpr Duration kDeviceUnlearned = seconds(600);

  struct Sample {
    bool ready = false;  // the trainer has attached the shared page
    Activity activity = Activity::kStarting;
    uint64_t heartbeat = 0;
    bool stopped = false;               // by a signal or a tracer
    uint64_t waits = 0;                 // counts only in a collective
    bool stepped = false;               // it has committed a step
    std::optional<ProcessWork> work{};  // of all its processes, when WantsWork
  };
  struct HangReport {
    std::string evidence;  // "hang" or "stopped", as in rendezvous::Down
    std::string message;
    bool in_collective = false;  // report it and let the trainer live
  };

  explicit HangWatch(HangLimits limits) : limits_(limits) {}

  // Call about every 20 ms from the start of the trainer. Returns a report when it hangs: kill it, and use a
  // new HangWatch, unless it hangs in a collective. That is reported again after the same time.
  std::optional<HangReport> Feed(Time now, const Sample& sample);

  // Whether the next sample should have `work`.
  bool WantsWork(Time now) const;

  // Returns the current limit for the time between two heartbeats; zero: none.
  Duration StepLimit() const;
  // Returns the current limit for a collective without a sign of life; zero: none.
  Duration ExchangeLimit() const;
  // Returns the current limit of a wait for the device; zero: none.
  Duration DeviceLimit() const;

  // The same for a program that does something all the time.
  Duration BusyLimit() const;

 private:
  void LearnWork(Time now, const ProcessWork& work);

  HangLimits limits_;
  std::optional<Time> last_;
  Sample previous_;
  Duration silent_{};                // since the last sign of progress
  Duration idle_{};                  // the same, since it was last observed to work
  std::optional<ProcessWork> work_;  // in the last sample that has one, since the last sign of progress
  Time work_at_{};
  Duration stopped_{};    // without interruption
  Duration longest_{};    // between two heartbeats while computing
  Intervals heartbeats_;  // the same intervals
  Intervals device_waits_;
};

}  // namespace ringmaster::agent
