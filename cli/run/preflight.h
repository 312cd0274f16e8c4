// SPDX-License-Identifier: Apache-2.0

// The checks of `ringmaster run` before it starts a process. Opens the data and reads checkpoints; writes
// nothing. Main thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/training_job.h"
#include "base/result.h"
#include "cli/run/user_program.h"
#include "worker/trainer/run_config.h"

namespace ringmaster::cli {

struct RunPlan {
  std::optional<UserPrograms> programs;  // launch.kind ranks
  std::optional<UserProgram> library;    // launch.kind library
  api::TrainingJob job;                  // resolved: paths absolute, checkpoint folder filled in
  trainer::RunConfig config;             // native only
  checkpoint::Identity identity;         // without a model: the checkpoints of any program
  int64_t checkpoint_bytes = 0;          // size of one checkpoint; of programs: of the log
  std::vector<std::string> notes;        // messages for the user: fields that do not apply on one machine
};

// Returns the absolute path of the output folder: --out, or ringmaster-out/<job>.
std::string OutputFolderOf(const api::TrainingJob& job, const std::string& out);

// Resolves paths against the current folder, opens the data, and builds the model to get its layout. Errors
// name the field, the reason and the remedy.
Result<RunPlan> MakePlan(api::TrainingJob job, const std::string& checkpoint_folder);

// Returns the step of the newest usable checkpoint, from which the run continues, or 0. Errors: kInvalid when
// the checkpoint belongs to another run or has more steps than the plan. Appends the damaged checkpoints that
// it skipped, and changes that spec.checkpoint.from accepts, to the notes.
Result<int64_t> FindResumeStep(RunPlan* plan);

}  // namespace ringmaster::cli
