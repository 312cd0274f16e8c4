// SPDX-License-Identifier: Apache-2.0

// The programs of a job whose framework is not native, as `ringmaster run` starts them: the command of each
// container that trains, without the container. Main thread only.
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

struct UserPrograms {
  UserProgram workers;
  std::map<std::string, UserProgram> roles;  // by name
};

// Returns the programs of spec.workers.template and of the roles. Appends to `notes` what does not apply on
// one machine. Errors: kInvalid with the field, the reason and the remedy.
Result<UserPrograms> ReadUserPrograms(const api::TrainingJob& job, std::vector<std::string>* notes);

}  // namespace ringmaster::cli
