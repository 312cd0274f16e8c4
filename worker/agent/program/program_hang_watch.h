// SPDX-License-Identifier: Apache-2.0

// ProgramHangWatch distinguishes a program that hangs from one that computes, waits or saves. The agent
// cannot look into the program: it knows the progress that the program reports, its output, and its CPU time.
// A pure state machine: it takes samples and reports a hang. Not thread-safe.
//
// - A program that has reported progress hangs when no further report comes for the limit of a step. The
//   learned limit also waits for its output to stop: an evaluation between two steps prints something.
// - Any program hangs when it prints nothing, reports nothing and uses no CPU time for the limit of silence.
// - A program one of whose processes is stopped by a signal for some seconds hangs.
//
// Only observed time counts: a gap between two samples counts as at most two intervals, so an agent that
// was suspended or starved does not blame its program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"
#include "worker/agent/shell/intervals.h"

namespace ringmaster::agent {

struct ProgramHangLimits {
  std::optional<Duration> step{};    // between two reports; nullopt: learned; zero: none
  Duration silence = seconds(1800);  // zero: none
  Duration stopped = seconds(5);
};

// Returns the limits of a program of this role (empty: worker). A parameter server and an evaluator are idle
// by design, between requests or checkpoints: for them only a signal that stops a process is a hang. A
// launcher in a separate pod waits for its ranks, whose agents see whether they compute.
ProgramHangLimits LimitsOfRole(ProgramHangLimits limits, std::string_view role);

class ProgramHangWatch {
 public:
  // The limit that is learned from reports is at least this: saving a checkpoint may take minutes. It takes
  // effect at the second report.
  static constexpr Duration kFloor = seconds(900);
  // What a program uses while it does nothing, such as threads that poll: this share of a CPU.
  static constexpr double kIdleShare = 0.02;

  struct Sample {
    uint64_t reports = 0;   // of progress
    uint64_t output = 0;    // bytes on stdout and stderr
    Duration cpu{};         // of all its processes
    bool stopped = false;   // one of its processes is stopped by a signal
    bool finished = false;  // it has reported its last step: what follows has no step
  };

  explicit ProgramHangWatch(ProgramHangLimits limits);

  // How often to call Feed.
  Duration interval() const { return interval_; }
  // Returns why the program hangs; nullopt: it does not. Use a new watch after a report.
  std::optional<std::string> Feed(Time now, const Sample& sample);

 private:
  std::optional<std::string> CheckSteps(bool finished) const;
  std::optional<std::string> CheckSilence(const Sample& sample);

  ProgramHangLimits limits_;
  Duration interval_;
  Duration slot_length_;
  std::optional<Time> last_;
  Sample previous_;
  Duration since_report_{};
  Duration quiet_{};     // since the last output or report
  Duration idle_{};      // since CPU time was used
  Duration stopped_{};   // without interruption
  Duration slot_{};      // over which CPU time is compared with kIdleShare
  Duration slot_cpu_{};  // at its begin
  Intervals reports_;
};

}  // namespace ringmaster::agent
