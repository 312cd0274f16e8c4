// SPDX-License-Identifier: Apache-2.0

#include "cli/launch/command_line.h"

#include <cstddef>

namespace ringmaster::cli::launch {

std::vector<std::string> MarkCommand(std::vector<std::string> arguments,
                                     const std::function<bool(const std::string& flag)>& takes_value) {
  size_t at = 0;
  while (at < arguments.size() && arguments[at].size() > 1 && arguments[at].starts_with('-')) {
    const std::string& word = arguments[at];
    if (word == "--") return arguments;
    const bool has_value = word.find('=') != word.npos || (!word.starts_with("--") && word.size() > 2);
    at += !has_value && takes_value(word) ? 2 : 1;
  }
  if (at < arguments.size()) arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(at), "--");
  return arguments;
}

}  // namespace ringmaster::cli::launch
