// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/mpi/horovod_run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/exit_codes.h"
#include "base/file.h"
#include "worker/agent/mpi/mpi_files.h"
#include "worker/agent/mpi/mpi_links.h"
#include "worker/agent/mpi/mpi_rsh.h"
#include "worker/agent/net/own_interface.h"

namespace ringmaster::agent {
namespace {

// Options of horovodrun 0.28 that have no value. Every other one has, but kTwoValues has two.
constexpr std::string_view kHorovodFlags[] = {"-v",
                                              "--version",
                                              "-h",
                                              "--help",
                                              "-cb",
                                              "--check-build",
                                              "--disable-cache",
                                              "--verbose",
                                              "--hierarchical-allreduce",
                                              "--no-hierarchical-allreduce",
                                              "--hierarchical-allgather",
                                              "--no-hierarchical-allgather",
                                              "--torus-allreduce",
                                              "--no-torus-allreduce",
                                              "--autotune",
                                              "--no-autotune",
                                              "--timeline-mark-cycles",
                                              "--no-timeline-mark-cycles",
                                              "--no-stall-check",
                                              "--stall-check",
                                              "--mpi-threads-disable",
                                              "--no-mpi-threads-disable",
                                              "--tcp",
                                              "--log-with-timestamp",
                                              "--log-without-timestamp",
                                              "-prefix-timestamp",
                                              "--prefix-output-with-timestamp",
                                              "--log-hide-timestamp",
                                              "--no-log-hide-timestamp",
                                              "--gloo",
                                              "--mpi",
                                              "--jsrun"};
constexpr std::string_view kTwoValues = "--blacklist-cooldown-range";
// Letters of options that may have their values in the same word.
constexpr std::string_view kAttached = "Hpi";

// Where the hosts come from. A list and a file are read once; a script makes the job elastic.
enum class HostSource { kDefault, kList, kFile, kScript };
struct HostOption {
  std::string_view name;
  HostSource source;
};
constexpr HostOption kHostOptions[] = {{"-H", HostSource::kList},
                                       {"--hosts", HostSource::kList},
                                       {"-hostfile", HostSource::kFile},
                                       {"--hostfile", HostSource::kFile},
                                       {"--host-discovery-script", HostSource::kScript}};
constexpr std::string_view kLoopbackNames[] = {"localhost", "127.0.0.1"};
constexpr std::string_view kMinimumOptions[] = {"--min-np", "--min-num-proc"};
constexpr std::string_view kRankOptions[] = {"-np", "--num-proc"};
constexpr std::string_view kInterfaceOptions[] = {"--network-interfaces", "--network-interface"};
constexpr std::string_view kControllerOptions[] = {"--gloo", "--mpi", "--jsrun"};
constexpr std::string_view kMpiOptions[] = {"--mpi", "--jsrun"};

template <size_t n>
bool IsAmong(const std::string_view (&list)[n], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

// The options of a command, and where the user's program begins.
struct HorovodCommand {
  std::vector<std::string> options;  // without values
  HostSource source = HostSource::kDefault;
  std::string hosts;  // the value of that option
  size_t program = 0;

  template <size_t n>
  bool Has(const std::string_view (&list)[n]) const {
    return std::any_of(options.begin(), options.end(),
                       [&](const std::string& o) { return IsAmong(list, o); });
  }
};

HorovodCommand ParseHorovod(const std::vector<std::string>& arguments) {
  HorovodCommand parsed;
  size_t i = 0;
  while (i < arguments.size() && arguments[i].size() > 1 && arguments[i][0] == '-') {
    const std::string& word = arguments[i++];
    const size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    std::string value;
    const bool attached =
        word[1] != '-' && word.size() > 2 && kAttached.find(word[1]) != std::string_view::npos;
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (!IsAmong(kHorovodFlags, word)) {
      if (attached) {
        name = word.substr(0, 2);
        value = word.substr(2);
      } else {
        if (i < arguments.size()) value = arguments[i];
        i += word == kTwoValues ? 2 : 1;
      }
    }
    const auto* const option = std::find_if(std::begin(kHostOptions), std::end(kHostOptions),
                                            [&](const HostOption& one) { return one.name == name; });
    if (option != std::end(kHostOptions)) {
      parsed.source = option->source;
      parsed.hosts = value;
    }
    parsed.options.push_back(std::move(name));
  }
  parsed.program = std::min(i, arguments.size());
  return parsed;
}

struct Host {
  std::string name;
  std::string slots;
};

// The file has "NAME slots=N" in each line.
Result<std::vector<Host>> ReadHosts(const std::string& path) {
  RM_ASSIGN(const std::string text, ReadFile(path));
  std::istringstream lines(text);
  std::vector<Host> hosts;
  for (Host host; lines >> host.name >> host.slots;) {
    host.slots.erase(0, host.slots.find('=') + 1);
    hosts.push_back(host);
  }
  return hosts;
}

// Returns the names of the hosts that a command lists, in a value such as "a:2,b:2" or in a file. Empty: it
// lists none, or the file cannot be read, which horovodrun reports.
std::vector<std::string> ListedHosts(const HorovodCommand& command) {
  std::vector<std::string> names;
  if (command.source == HostSource::kList) {
    std::istringstream list(command.hosts);
    for (std::string host; std::getline(list, host, ',');) names.push_back(host.substr(0, host.find(':')));
  }
  if (command.source == HostSource::kFile) {
    const Result<std::string> text = ReadFile(command.hosts);
    std::istringstream lines(text.ok() ? *text : "");
    std::string name;
    for (std::string line; std::getline(lines, line);) {
      if (std::istringstream(line) >> name) names.push_back(name);
    }
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> HorovodArguments(const std::vector<std::string>& arguments,
                                                  const HorovodDefaults& defaults) {
  const HorovodCommand parsed = ParseHorovod(arguments);
  if (parsed.program == arguments.size()) return arguments;  // such as --check-build
  if (!defaults.mpi && parsed.Has(kMpiOptions))
    return Error{
        Code::kInvalid,
        "the option --mpi needs spec.launch.mpi, which names the implementation of MPI in the image; "
        "set it, or use --gloo"};
  // What it would find out again belongs to the last incarnation.
  std::vector<std::string> out = {"--disable-cache"};
  const auto add = [&](const char* name, std::string value) {
    out.emplace_back(name);
    out.push_back(std::move(value));
  };
  if (!parsed.Has(kRankOptions)) add("-np", std::to_string(defaults.ranks));
  const bool elastic =
      defaults.min_ranks > 0 && parsed.source != HostSource::kList && parsed.source != HostSource::kFile;
  if (elastic && !parsed.Has(kMinimumOptions)) add("--min-np", std::to_string(defaults.min_ranks));
  if (parsed.source == HostSource::kDefault) {
    if (elastic)
      add("--host-discovery-script", defaults.agent + " hosts");
    else
      add("--hostfile", defaults.hosts);
  }
  const auto is_own = [&](const std::string& name) {
    return IsAmong(kLoopbackNames, name) ||
           std::find(defaults.own_names.begin(), defaults.own_names.end(), name) != defaults.own_names.end();
  };
  bool alone = defaults.alone;
  if (parsed.source != HostSource::kDefault) {
    const std::vector<std::string> listed = ListedHosts(parsed);
    alone = !listed.empty() && std::all_of(listed.begin(), listed.end(), is_own);
  }
  const std::string& interface = alone ? defaults.loopback : defaults.interface;
  if (!parsed.Has(kInterfaceOptions) && !interface.empty()) add("--network-interfaces", interface);
  if (!parsed.Has(kControllerOptions) && !defaults.mpi) out.emplace_back("--gloo");
  const auto program = arguments.begin() + static_cast<std::ptrdiff_t>(parsed.program);
  out.insert(out.end(), arguments.begin(), program);
  out.insert(out.end(), {defaults.agent, "rank"});
  out.insert(out.end(), program, arguments.end());
  return out;
}

int RunHorovod(std::vector<std::string> words) {
  const auto fail = [](const std::string& why) {
    std::fprintf(stderr, "horovodrun: %s\n", why.c_str());
    return kExitCannotStart;
  };
  const Result<MpiPlace> place = FindMpiPlace();
  if (!place.ok()) return fail(place.error().message);
  const Result<std::string> path = FindBehindLinks(words[0]);
  if (!path.ok()) return fail(path.error().message);
  HorovodDefaults defaults;
  defaults.hosts = place->folder + kHorovodHosts;
  const Result<std::vector<Host>> hosts = ReadHosts(defaults.hosts);
  if (!hosts.ok()) return fail(hosts.error().message);
  for (const Host& host : *hosts) defaults.ranks += std::atoi(host.slots.c_str());
  const char* const min = std::getenv(kMpiMinVariable);
  if (min != nullptr && !hosts->empty())
    defaults.min_ranks = std::atoi(min) * std::atoi(hosts->front().slots.c_str());
  defaults.own_names = {place->self.pod, place->self.host};
  defaults.alone = hosts->size() == 1 && hosts->front().name == place->self.pod;
  defaults.interface = InterfaceOf(place->self.host);
  defaults.loopback = InterfaceOf("127.0.0.1");
  defaults.agent = place->agent;
  const char* const mpi = std::getenv(kMpiImplementationVariable);
  defaults.mpi = mpi != nullptr && std::string(mpi) != kGloo;
  Result<std::vector<std::string>> command = HorovodArguments({words.begin() + 1, words.end()}, defaults);
  if (!command.ok()) return fail(command.error().message);
  command->insert(command->begin(), *path);
  return ReplaceProcess(*path, std::move(command).value());
}

int RunHosts() {
  const Result<MpiPlace> place = FindMpiPlace();
  const Result<std::vector<Host>> hosts =
      place.ok() ? ReadHosts(place->folder + kHorovodHosts) : Result<std::vector<Host>>(place.error());
  if (!hosts.ok()) {
    std::fprintf(stderr, "ringmaster hosts: %s\n", hosts.error().message.c_str());
    return kExitCannotStart;
  }
  for (const Host& host : *hosts) std::printf("%s:%s\n", host.name.c_str(), host.slots.c_str());
  return 0;
}

int RunByName(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[1] == "hosts") return RunHosts();
  if (words.size() > 2 && words[1] == "rsh") return RunRsh({words.begin() + 2, words.end()});
  const Result<std::string> real = FindBehindLinks(words[0]);
  if (real.ok()) return ReplaceProcess(*real, words);
  std::fprintf(stderr, "usage: ringmaster hosts | ringmaster rsh HOST COMMAND...\n");
  return kExitCannotStart;
}

}  // namespace ringmaster::agent
