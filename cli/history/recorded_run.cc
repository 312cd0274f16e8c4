// SPDX-License-Identifier: Apache-2.0

#include "cli/history/recorded_run.h"

#include <filesystem>

#include "cli/history/step_history.h"

namespace ringmaster::cli {

Result<RecordedRun> LoadRun(const std::string& folder) {
  RecordedRun run;
  std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  run.name = path.filename().string();
  auto steps = ReadSteps(folder + "/metrics.jsonl");
  if (!steps.ok() && steps.error().code == Code::kNotFound)
    return Error{Code::kNotFound,
                 folder + ": has no metrics.jsonl; expected the output folder of `ringmaster run`"};
  if (!steps.ok()) return steps.error();
  run.steps = std::move(*steps);
  auto events = ReadEvents(folder + "/events.jsonl");
  if (!events.ok() && events.error().code != Code::kNotFound) return events.error();
  if (events.ok()) run.events = std::move(*events);
  run.timeline = TimelineOf(run.events);
  return run;
}

}  // namespace ringmaster::cli
