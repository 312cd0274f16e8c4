// SPDX-License-Identifier: Apache-2.0

// The program of a job whose framework is not native, as `ringmaster run` starts it: the command of the
// worker's container, without the container. Main thread only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "api/training_job.h"
#include "base/result.h"

namespace ringmaster::cli {

struct UserProgram {
  std::vector<std::string> command;                // command and args, with $(NAME) replaced
  std::map<std::string, std::string> environment;  // of the container
  std::string folder;                              // where it runs: the current folder
};

// Returns the program of spec.workers.template. Appends to `notes` what does not apply on one machine.
// Errors: kInvalid with the field, the reason and the remedy.
Result<UserProgram> ReadUserProgram(const api::TrainingJob& job, std::vector<std::string>* notes);

}  // namespace ringmaster::cli
