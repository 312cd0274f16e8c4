// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/preload_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace ringmaster::agent {
namespace {

bool IsPython(std::string_view program) {
  constexpr std::string_view kName = "python";
  const std::string_view name = program.substr(program.rfind('/') + 1);
  return name.starts_with(kName) &&
         name.find_first_not_of("0123456789.", kName.size()) == std::string_view::npos;
}

bool TakesValue(std::string_view option) {
  return option == "-X" || option == "-W" || option == "--check-hash-based-pycs";
}

// Options with one letter may be joined: -um MODULE, -Ec COMMAND.
bool Joins(std::string_view option, std::string_view letters) {
  return !option.starts_with("--") && !option.starts_with("-X") && !option.starts_with("-W") &&
         option.find_first_of(letters) != std::string_view::npos;
}

}  // namespace

Result<std::vector<std::string>> PreloadCommand(const std::vector<std::string>& command,
                                                const std::vector<std::string>& modules,
                                                const std::string& runner) {
  const auto refuse = [](const std::string& why) {
    return Error{Code::kInvalid,
                 fmt::format("{}; launch.preload needs a command such as [python, train.py] or "
                             "[python, -m, module]",
                             why)};
  };
  if (command.empty() || !IsPython(command[0]))
    return refuse(fmt::format("the command is {} and not python", command.empty() ? "empty" : command[0]));
  size_t at = 1;
  while (at < command.size() && command[at].starts_with('-') && command[at] != "-m") {
    const std::string& option = command[at];
    if (option == "-" || Joins(option, "c"))
      return refuse(fmt::format("the option {} has no script", option));
    if (Joins(option, "m")) return refuse(fmt::format("the option {} joins -m with others", option));
    at += TakesValue(option) ? 2 : 1;
  }
  const size_t needed = at < command.size() && command[at] == "-m" ? 2 : 1;
  if (at + needed > command.size()) return refuse("the command names no script and no module");
  std::vector<std::string> out(command.begin(), command.begin() + static_cast<ptrdiff_t>(at));
  out.push_back(runner);
  std::string list;
  for (const std::string& module : modules) list += (list.empty() ? "" : ",") + module;
  out.push_back(std::move(list));
  out.insert(out.end(), command.begin() + static_cast<ptrdiff_t>(at), command.end());
  return out;
}

}  // namespace ringmaster::agent
