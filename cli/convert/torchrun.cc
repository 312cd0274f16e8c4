// SPDX-License-Identifier: Apache-2.0

#include "cli/convert/torchrun.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ringmaster::cli::convert {
namespace {

constexpr std::array<std::string_view, 9> kOfTheGang = {"nnodes",        "node_rank",   "rdzv_backend",
                                                        "rdzv_endpoint", "rdzv_id",     "rdzv_conf",
                                                        "master_addr",   "master_port", "max_restarts"};
constexpr std::array<std::string_view, 7> kWithoutValue = {"standalone", "no_python", "run_path", "module",
                                                           "use_env",    "help",      "m"};

template <size_t N>
bool Contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns "rdzv_backend" for "--rdzv-backend=c10d".
std::string OptionName(std::string_view word) {
  std::string name(word.substr(word.find_first_not_of('-')));
  name.resize(std::min(name.find('='), name.size()));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool IsTune(std::string_view word) { return word.substr(word.rfind('/') + 1) == "tune"; }

// Returns the index of the first option of torchrun, or 0.
size_t FindOptions(const std::vector<std::string>& command) {
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string_view word = command[i];
    if (word.substr(word.rfind('/') + 1) == "torchrun") return i + 1;
    if (word == "run" && i > 0 && IsTune(command[i - 1])) return i + 1;
    const bool module = i > 0 && command[i - 1] == "-m";
    if (module && (word == "torch.distributed.run" || word == "torch.distributed.launch")) return i + 1;
  }
  return 0;
}

bool IsOption(std::string_view word) {
  return word.find_first_not_of('-') != word.npos && word.starts_with("-");
}

}  // namespace

Torchrun ReadTorchrun(const std::vector<std::string>& command) {
  Torchrun result;
  result.command = command;
  const size_t begin = FindOptions(command);
  if (begin == 0) {
    result.in_shell = std::any_of(command.begin(), command.end(), [](const std::string& word) {
      return word.find("torchrun ") != word.npos || word.find("torch.distributed.run ") != word.npos;
    });
    return result;
  }
  result.found = true;
  result.options = begin;
  result.needs_option = begin > 1 && command[begin - 1] == "run" && IsTune(command[begin - 2]);
  result.command.resize(begin);
  size_t i = begin;
  // The first word that is neither an option nor its value is the script; the rest belongs to it.
  while (i < command.size() && IsOption(command[i])) {
    const std::string name = OptionName(command[i]);
    const bool alone = command[i].find('=') != std::string::npos || Contains(kWithoutValue, name);
    const size_t end = std::min(i + (alone ? 1 : 2), command.size());
    const bool of_the_gang = Contains(kOfTheGang, name) || name == "standalone";
    result.sets_processes = result.sets_processes || name == "nproc_per_node";
    for (; i < end; ++i) (of_the_gang ? result.removed : result.command).push_back(command[i]);
  }
  result.command.insert(result.command.end(), command.begin() + static_cast<std::ptrdiff_t>(i),
                        command.end());
  return result;
}

}  // namespace ringmaster::cli::convert
