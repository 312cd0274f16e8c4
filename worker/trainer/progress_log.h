// SPDX-License-Identifier: Apache-2.0

// ProgressLog composes the lines of a trainer's log about its progress, for people who read the log of a
// worker, and for the page of a job on a cluster, which draws its curves from them
// (cli/cluster/worker_log.h):
//
//   step=1200 steps=3000 loss=2.3101 lr=0.0006 grad_norm=1.32 samples_per_second=812 busy=0.0312
//   longest=0.0411 micro_batches=2 generation=4294967297 rank=0 world=4 transport=shm       (in one line)
//
// A line is due after the first step, after the last one, and when kPeriod has passed since the line before.
// Speed and busy times (rendezvous::BusyTime) are those of the steps since then. A line after a validation
// also has validation=.. and validation_step=... Every member logs all of it: the loss is the same on each of
// them, so that the history of a job survives the log of any one. A line has the membership as well: the line
// that reports it first leaves a long log.
//
// Between two lines a step costs a few additions. Time is an argument. Not thread-safe; main thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.h"
#include "rendezvous/messages.h"

namespace ringmaster::trainer {

class ProgressLog {
 public:
  static constexpr Duration kPeriod = seconds(5);

  explicit ProgressLog(int64_t total_steps) : total_steps_(total_steps) {}

  // The sums of the steps since the last line start again: they belong to a membership.
  void StartGeneration(int rank, std::string transport);
  // `busy`: how long this member was busy in the step, for which it computed `micro_batches`; 0: none.
  // Returns a line when one is due.
  std::optional<std::string> Committed(const rendezvous::StepRecord& record, Duration busy,
                                       int32_t micro_batches, Time now);
  // The next line will have the result.
  void Validated(const rendezvous::ValidationResult& result) { validation_ = result; }
  // Returns the line about the validation after the last step.
  std::string LastValidation(const rendezvous::ValidationResult& result) const;

 private:
  void StartSums();
  std::string Line(const rendezvous::StepRecord& record) const;

  const int64_t total_steps_;
  int rank_ = 0;
  std::string transport_;
  std::optional<Time> last_line_;
  // Since the last line:
  int64_t samples_ = 0;
  double seconds_ = 0;
  int64_t busy_steps_ = 0;
  Duration busy_{};
  Duration longest_{};
  int32_t micro_batches_ = 0;
  std::optional<rendezvous::ValidationResult> validation_;
};

}  // namespace ringmaster::trainer
