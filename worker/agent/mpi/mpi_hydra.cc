// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/mpi_hydra.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/exit_codes.h"
#include "worker/agent/mpi/mpi_files.h"
#include "worker/agent/mpi/mpi_links.h"
#include "worker/agent/net/own_interface.h"
#include "worker/agent/shell/find_program.h"

namespace ringmaster::agent {
namespace {

// Options with one value, of MPICH and of Intel MPI.
constexpr std::string_view kHydraValued[] = {"arch",
                                             "bind-to",
                                             "binding",
                                             "bootstrap",
                                             "bootstrap-exec",
                                             "branch-count",
                                             "configfile",
                                             "demux",
                                             "dir",
                                             "env-list",
                                             "envlist",
                                             "envexcl",
                                             "errfile-pattern",
                                             "f",
                                             "file",
                                             "genvexcl",
                                             "genvlist",
                                             "gpus-per-proc",
                                             "gtool",
                                             "gtoolfile",
                                             "host",
                                             "hostfile",
                                             "hosts",
                                             "iface",
                                             "launcher",
                                             "launcher-exec",
                                             "localhost",
                                             "machine",
                                             "machinefile",
                                             "map-by",
                                             "membind",
                                             "n",
                                             "nameserver",
                                             "np",
                                             "order-nodes",
                                             "outfile-pattern",
                                             "path",
                                             "perhost",
                                             "ppn",
                                             "prepend-pattern",
                                             "rmk",
                                             "s",
                                             "soft",
                                             "timeout",
                                             "topolib",
                                             "umask",
                                             "usize",
                                             "wd",
                                             "wdir"};
constexpr std::string_view kHydraFlags[] = {"disable-auto-cleanup",
                                            "disable-hostname-propagation",
                                            "disable-x",
                                            "enable-x",
                                            "envall",
                                            "envnone",
                                            "genvall",
                                            "genvnone",
                                            "l",
                                            "pmi-port",
                                            "prepend-rank",
                                            "print-all-exitcodes",
                                            "profile",
                                            "rr",
                                            "grr",
                                            "skip-launch-node",
                                            "v",
                                            "verbose"};

template <size_t n>
bool Contains(const std::string_view (&list)[n], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

// Returns how many words after this option belong to it.
size_t ValuesOf(const std::string& option, const std::string* next, bool (*is_program)(const std::string&)) {
  const std::string_view name = std::string_view(option).substr(option.starts_with("--") ? 2 : 1);
  if (name.find('=') != std::string_view::npos) return 0;
  if (name == "env" || name == "genv") return 2;
  if (Contains(kHydraValued, name)) return 1;
  if (Contains(kHydraFlags, name) || next == nullptr || next->starts_with('-')) return 0;
  return is_program(*next) ? 0 : 1;
}

// Hydra does not need the links to this program.
void RemoveFromPath(const std::string& links) {
  const char* const set = std::getenv("PATH");
  std::string path = set == nullptr ? "" : set;
  if (path.starts_with(links + ":")) path.erase(0, links.size() + 1);
  ::setenv("PATH", path.c_str(), 1);
}

}  // namespace

bool IsHydraName(std::string_view path) { return Contains(kHydraNames, path.substr(path.rfind('/') + 1)); }

std::vector<std::string> WrapHydraRanks(const std::vector<std::string>& arguments, const std::string& agent,
                                        bool (*is_program)(const std::string& word)) {
  std::vector<std::string> out;
  bool options = true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!options) {
      options = word == ":";  // the next program follows
    } else if (word.size() > 1 && word[0] == '-') {
      const std::string* next = i + 1 < arguments.size() ? &arguments[i + 1] : nullptr;
      const size_t values = std::min(ValuesOf(word, next, is_program), arguments.size() - i - 1);
      out.insert(out.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                 arguments.begin() + static_cast<std::ptrdiff_t>(i + values));
      i += values;
      out.push_back(arguments[i]);
      continue;
    } else {
      options = false;
      if (word != agent) out.insert(out.end(), {agent, "rank"});
    }
    out.push_back(word);
  }
  return out;
}

std::string HydraInterface(const char* implementation, const std::string& host) {
  if (implementation == nullptr || std::string_view(implementation) != "intel") return "";
  return InterfaceOf(host);
}

int RunHydra(std::vector<std::string> words) {
  const auto fail = [](const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return kExitCannotStart;
  };
  const Result<MpiPlace> place = FindMpiPlace();
  if (!place.ok()) return fail(place.error().message);
  const Result<std::string> path = FindBehindLinks(words[0]);
  if (!path.ok()) return fail(path.error().message);
  RemoveFromPath(place->folder + kMpiBin);

  std::vector<std::string> command = {*path, "-localhost", place->self.host};
  const std::string interface = HydraInterface(std::getenv(kMpiImplementationVariable), place->self.host);
  // An option of the user wins over the variable.
  if (!interface.empty()) ::setenv("I_MPI_HYDRA_IFACE", interface.c_str(), /*overwrite=*/0);
  const auto is_program = [](const std::string& word) {
    const Result<std::string> found = FindProgram(word);
    return found.ok() && ::access(found->c_str(), X_OK) == 0;
  };
  for (std::string& word : WrapHydraRanks({words.begin() + 1, words.end()}, place->agent, is_program))
    command.push_back(std::move(word));
  return ReplaceProcess(*path, std::move(command));
}

}  // namespace ringmaster::agent
