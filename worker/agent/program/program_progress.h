// SPDX-License-Identifier: Apache-2.0

// What a user's program says about its progress: a line of its output, or a message to the socket
// RINGMASTER_PROGRESS_SOCKET, that is a JSON object with a whole number `step`:
//
//   {"step": 120, "loss": 0.71, "total_steps": 1000, "samples": 64, "lr": 0.001}
//
// Only `step` is required, and other members are ignored. The Trainer of Hugging Face prints something else:
// a Python dictionary without the step to stdout, and a progress bar (tqdm) with the step to stderr. tqdm
// overwrites its bar with spaces, prints the dictionary, and draws the bar again:
//
//   {'loss': 0.5, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.3}
//     10%|#         | 50/500 [00:10<01:30,  5.00it/s]
//
// So the first bar after spaces belongs to the first dictionary that has no step yet, however much of each
// stream is read at once. REQUIRES: stdout is read before stderr.
//
// Reports to Kubeflow Trainer (kubeflow_status.h) have a percentage, the time left, and metrics. Their steps
// count unless the program reports steps in one of the other ways, which have the loss of the same step: the
// callback of Hugging Face adds the loss that it has logged last. Where no metric is a step, a percent is one
// of 100 steps.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "rendezvous/messages.h"
#include "worker/agent/kubeflow/kubeflow_status.h"

namespace ringmaster::agent {

class ProgramProgress {
 public:
  // The coordinator hears of progress at most this often.
  static constexpr Duration kPeriod = milliseconds(100);

  // A program starts: steps of an earlier one do not count.
  void Begin(Time now);
  // Takes a line or a message. Returns true if it reports progress.
  bool Take(std::string_view text, Time now);
  // Takes a report to Kubeflow Trainer.
  void Take(const KubeflowStatus& status, Time now);

  // When Flush is due; kNever: there is nothing to report.
  Time due() const { return has_news() ? due_ : kNever; }
  // How many reports have come. Without a progress bar, a dictionary is a report whose step is unknown.
  uint64_t reports() const { return reports_; }
  // Whether the program that runs has reported its last step.
  bool finished() const { return complete_ || (total_ > 0 && newest_ >= total_); }

  // Returns what was reported since the last call. `now` is at least due(), or the program has ended.
  std::optional<rendezvous::Progress> Flush(Time now);

 private:
  enum class StepsOf { kNone, kPercent, kMetrics, kOutput };  // where the steps of this program come from

  bool has_news() const { return !pending_.records.empty() || pending_.seconds_left.has_value(); }
  bool TakeJson(std::string_view text, Time now);
  bool TakeDictionary(std::string_view text);
  bool TakeBar(std::string_view text, Time now);
  void Add(rendezvous::StepRecord record, int64_t total, Time now);

  rendezvous::Progress pending_;
  std::deque<std::optional<rendezvous::StepRecord>> dictionaries_;  // without their steps; nullopt: no loss
  bool bar_erased_ = false;                                         // by spaces, since the last bar
  StepsOf steps_of_ = StepsOf::kNone;
  bool complete_ = false;  // the program has reported 100 percent
  uint64_t reports_ = 0;
  int64_t newest_ = 0;
  int64_t total_ = 0;
  Time due_{};
  Time stepped_at_{};
};

}  // namespace ringmaster::agent
