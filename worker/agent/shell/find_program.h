// SPDX-License-Identifier: Apache-2.0

// The file that a shell would run. Thread-safe, except that it reads the environment.
#pragma once

#include <string>

#include "base/result.h"

namespace ringmaster::agent {

// `name`: a path, or the name of a program in PATH. Errors: kNotFound when PATH has no such program.
Result<std::string> FindProgram(const std::string& name);

// The same, and the file exists and can be executed. Errors: also those of access.
Result<std::string> FindExecutable(const std::string& name);

}  // namespace ringmaster::agent
