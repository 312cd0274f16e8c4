// SPDX-License-Identifier: Apache-2.0

// Loads what `ringmaster run` recorded in its output folder, of a finished run or of one that still runs.
// Pure except for reading files.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/history/gang_timeline.h"
#include "cli/history/run_event.h"
#include "rendezvous/messages.h"

namespace ringmaster::cli {

struct RecordedRun {
  std::string name;  // of the folder
  std::vector<rendezvous::StepRecord> steps;
  std::vector<RunEvent> events;
  GangTimeline timeline;
};

// Errors name the folder: kNotFound when it does not exist or has no metrics.jsonl, kCorrupt when that file
// has a line that is not a step.
Result<RecordedRun> LoadRun(const std::string& folder);

}  // namespace ringmaster::cli
