// SPDX-License-Identifier: Apache-2.0

// DIR/summary.json and the summary that `ringmaster run` prints. Pure, except WriteSummary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace ringmaster::cli {

struct Summary {
  std::string phase;  // Succeeded | Failed | Interrupted
  int64_t step = 0;
  int64_t total_steps = 0;
  std::optional<double> loss;             // of the last committed step
  std::optional<double> validation_loss;  // after the last step; not when interrupted
  std::optional<double> validation_accuracy;
  bool language_model = false;  // adds perplexity = exp(validation loss) and tokens/s
  int64_t tokens_per_sample = 0;
  std::string weights_hash;
  std::string optimizer_hash;
  double samples_per_second = 0;
  double goodput = 0;
  int64_t generations = 0;
  int64_t worker_failures = 0;
  int64_t lost_steps = 0;
  double wall_seconds = 0;
  std::string message;
};

Json SummaryJson(const Summary& summary);
std::string SummaryText(const Summary& summary, const std::string& folder);
Status WriteSummary(const std::string& path, const Summary& summary);

}  // namespace ringmaster::cli
