// SPDX-License-Identifier: Apache-2.0

// The command of a spare (spare_program.h): Python, which imports modules before it runs the program. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace ringmaster::agent {

// Returns `python OPTIONS runner MODULES SCRIPT ARGS...` for `python OPTIONS SCRIPT ARGS...`; also with -m
// and a module in place of the script. `runner`: the path of preload.py. Errors: kInvalid when the command is
// not of this form.
Result<std::vector<std::string>> PreloadCommand(const std::vector<std::string>& command,
                                                const std::vector<std::string>& modules,
                                                const std::string& runner);

}  // namespace ringmaster::agent
