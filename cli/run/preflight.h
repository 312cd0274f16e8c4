// SPDX-License-Identifier: Apache-2.0

// Everything that can be known to be wrong before anything starts. Main thread only; opens the data and reads
// checkpoints, writes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/training_job.h"
#include "base/result.h"
#include "worker/trainer/run_config.h"

namespace ringmaster::cli {

struct RunPlan {
  api::TrainingJob job;  // resolved: paths absolute, checkpoint folder filled in
  trainer::RunConfig config;
  std::string fingerprint;
  int64_t checkpoint_bytes = 0;    // of one
  std::vector<std::string> notes;  // for people: what of the manifest does not apply on one machine
};

// The folder a run writes to: --out, or ringmaster-out/<job>; absolute.
std::string OutputFolderOf(const api::TrainingJob& job, const std::string& out);

// Resolves paths against the current folder, opens the data, builds the model to learn its layout. Errors
// name the field, the reason and the remedy.
Result<RunPlan> MakePlan(api::TrainingJob job, const std::string& checkpoint_folder);

// The step that the run will continue from: of the newest good checkpoint, or 0. kInvalid when that is of
// another model. `notes` tells about damaged ones that were passed over.
Result<int64_t> FindResumeStep(const std::string& checkpoint_folder, const std::string& fingerprint,
                               std::vector<std::string>* notes);

}  // namespace ringmaster::cli
