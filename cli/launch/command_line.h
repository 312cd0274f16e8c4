// SPDX-License-Identifier: Apache-2.0

// Finds where the user's command begins among the arguments of `ringmaster launch`. Pure function.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ringmaster::cli::launch {

// Inserts `--` before the first word that is neither a flag nor the value of one, as torchrun reads its
// command line, unless a `--` is there: no flag of the program is then taken for a flag of launch.
// `arguments` follow the name of the subcommand. `takes_value`: whether the flag has a value in the next
// word.
std::vector<std::string> MarkCommand(std::vector<std::string> arguments,
                                     const std::function<bool(const std::string& flag)>& takes_value);

}  // namespace ringmaster::cli::launch
