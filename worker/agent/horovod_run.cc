// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/horovod_run.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "worker/agent/mpi_files.h"
#include "worker/agent/mpi_links.h"
#include "worker/agent/mpi_rsh.h"
#include "worker/agent/termination.h"

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

constexpr std::string_view kHostOptions[] = {"-H", "--hosts", "-hostfile", "--hostfile",
                                             "--host-discovery-script"};
constexpr std::string_view kHostListOptions[] = {"-H", "--hosts"};
constexpr std::string_view kFixedHostOptions[] = {"-H", "--hosts", "-hostfile", "--hostfile"};
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
  std::string hosts;                 // the value of -H
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
    parsed.options.push_back(word.substr(0, equals));
    const bool lists_hosts = IsAmong(kHostListOptions, parsed.options.back());
    if (lists_hosts && equals != std::string::npos) parsed.hosts = word.substr(equals + 1);
    if (lists_hosts && equals == std::string::npos && i < arguments.size()) parsed.hosts = arguments[i];
    if (equals != std::string::npos || IsAmong(kHorovodFlags, word)) continue;
    // -H and -p may have their values in the same word.
    const bool attached = word[1] != '-' && word.size() > 2 &&
                          (word[1] == 'H' || word[1] == 'p' || word[1] == 'i') &&
                          !IsAmong(kHostOptions, word);
    if (attached) parsed.options.back() = word.substr(0, 2);
    if (attached && word[1] == 'H') parsed.hosts = word.substr(2);
    if (!attached) i += word == kTwoValues ? 2 : 1;
  }
  parsed.program = std::min(i, arguments.size());
  return parsed;
}

// Returns whether a list such as "a:2,b:2" has no other hosts than these.
bool HasOnly(const std::string& hosts, const std::vector<std::string>& names) {
  if (hosts.empty()) return false;
  std::istringstream list(hosts);
  for (std::string host; std::getline(list, host, ',');) {
    host.resize(std::min(host.find(':'), host.size()));
    if (std::find(names.begin(), names.end(), host) == names.end()) return false;
  }
  return true;
}

// Returns the interface of this machine that has an address; empty: none.
std::string InterfaceOf(const std::string& address) {
  in_addr wanted = {};
  if (::inet_pton(AF_INET, address.c_str(), &wanted) != 1) return "";  // Horovod has no IPv6
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  std::string name;
  for (const ifaddrs* one = all; one != nullptr && name.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const auto* own = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    if (own->sin_addr.s_addr == wanted.s_addr) name = one->ifa_name;
  }
  ::freeifaddrs(all);
  return name;
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
  const bool elastic = defaults.min_ranks > 0 && !parsed.Has(kFixedHostOptions);
  if (elastic && !parsed.Has(kMinimumOptions)) add("--min-np", std::to_string(defaults.min_ranks));
  if (!parsed.Has(kHostOptions)) {
    if (elastic)
      add("--host-discovery-script", defaults.agent + " hosts");
    else
      add("--hostfile", defaults.hosts);
  }
  const bool alone = parsed.Has(kHostOptions) ? HasOnly(parsed.hosts, defaults.own_names) : defaults.alone;
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
