// SPDX-License-Identifier: Apache-2.0

#include "api/display.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringmaster::api {

void FillDisplay(Status& status) {
  status.ready = status.replicas > 0 ? fmt::format("{}/{}", status.readyReplicas, status.replicas) : "";
  ProgressStatus& progress = status.progress;
  // Divide first: a step count may be as large as the largest integer in JSON.
  const double part = progress.totalSteps > 0
                          ? static_cast<double>(progress.step) / static_cast<double>(progress.totalSteps)
                          : 0;
  const int percent = progress.step >= progress.totalSteps ? 100 : std::min(99, static_cast<int>(100 * part));
  progress.percent = progress.totalSteps > 0 ? fmt::format("{}%", percent) : "";
  progress.eta = progress.etaSeconds > 0 ? ShortDuration(progress.etaSeconds) : "";
}

std::string ShortDuration(int64_t seconds) {
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m{:02}s", seconds / 60, seconds % 60);
  if (seconds < 86'400) return fmt::format("{}h{:02}m", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{}d{:02}h", seconds / 86'400, seconds / 3600 % 24);
}

}  // namespace ringmaster::api
