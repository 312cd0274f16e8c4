// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/ucx/known_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/file.h"

namespace ringmaster::fabric::ucx {
namespace {

constexpr auto kDistinguishesIpv4 = std::pair(1u, 19u);  // openucx/ucx pull request 10209
constexpr auto kSurvivesTimeouts = std::pair(1u, 14u);   // openucx/ucx pull request 8175
constexpr std::string_view kNvidia = "0x15b3";           // the PCI vendor that Mellanox was

std::string ReadLine(const std::string& path) {
  Result<std::string> text = ReadFile(path, 4096);
  if (!text.ok()) return "";
  return text->substr(0, text->find('\n'));
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

bool MayOpen(const std::string& root, const std::string& device) {
  const std::string folder = root + "/sys/class/infiniband_verbs";
  std::error_code error;
  return std::ranges::any_of(NamesIn(folder), [&](const std::string& name) {
    return ReadLine(folder + "/" + name + "/ibdev") == device &&
           std::filesystem::exists(root + "/dev/infiniband/" + name, error);
  });
}

// "0000:0000:0000:0000:0000:ffff:0a00:0007", with a network device of this namespace.
bool HasIpv4(const std::string& port) {
  return std::ranges::any_of(NamesIn(port + "/gids"), [&](const std::string& index) {
    return ReadLine(port + "/gids/" + index).starts_with("0000:0000:0000:0000:0000:ffff:") &&
           !ReadLine(port + "/gid_attrs/ndevs/" + index).empty();
  });
}

std::vector<std::string_view> Split(std::string_view list) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const size_t end = list.find(',');
    parts.push_back(list.substr(0, end));
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
  }
  return parts;
}

// Whether UCX may use the transport UD, by which it establishes all connections of RDMA.
bool MayUseRdma(std::string_view transports) {
  const bool excluding = transports.starts_with('^');
  if (excluding) transports.remove_prefix(1);
  const bool listed = std::ranges::any_of(Split(transports), [&](std::string_view name) {
    return name == "ib" || name.starts_with("ud") ||
           (!excluding && (name == "all" || name.starts_with("rc") || name.starts_with("dc")));
  });
  return transports.empty() || listed != excluding;
}

bool MayUsePort(std::string_view devices, std::string_view port) {
  const bool excluding = devices.starts_with('^');
  if (excluding) devices.remove_prefix(1);
  const bool listed = std::ranges::any_of(
      Split(devices), [&](std::string_view name) { return name == port || (!excluding && name == "all"); });
  return devices.empty() || listed != excluding;
}

}  // namespace

std::vector<RdmaPort> ReadRdmaPorts(const std::string& root) {
  std::vector<RdmaPort> ports;
  const std::string folder = root + "/sys/class/infiniband";
  for (const std::string& device : NamesIn(folder)) {
    if (!MayOpen(root, device)) continue;
    for (const std::string& number : NamesIn(folder + "/" + device + "/ports")) {
      const std::string port = folder + "/" + device + "/ports/" + number;
      if (!ReadLine(port + "/state").ends_with("ACTIVE")) continue;
      ports.push_back({device + ":" + number, ReadLine(folder + "/" + device + "/device/vendor") == kNvidia,
                       ReadLine(port + "/link_layer") == "Ethernet", HasIpv4(port)});
    }
  }
  return ports;
}

KnownFaults FindKnownFaults(std::pair<unsigned, unsigned> version, const std::string& text,
                            const std::vector<RdmaPort>& ports, const Variables& variables) {
  KnownFaults found;
  if (!MayUseRdma(variables("UCX_TLS").value_or(""))) return found;
  const std::string devices = variables("UCX_NET_DEVICES").value_or("");
  const bool chosen = variables("UCX_IB_GID_INDEX").value_or("auto") != "auto";
  std::string used, broken;
  bool healthy = false;
  for (const RdmaPort& port : ports) {
    if (!MayUsePort(devices, port.name)) continue;
    used += (used.empty() ? "" : ", ") + port.name;
    if (version < kDistinguishesIpv4 && port.ethernet && port.ipv4 && !port.nvidia && !chosen)
      broken += (broken.empty() ? "" : ", ") + port.name;
    else
      healthy = true;
  }
  if (!broken.empty()) {
    std::string problem = fmt::format(
        "UCX {} cannot connect over the RDMA port {}: before 1.19 it drops packets with IPv4 addresses on "
        "devices of other vendors than NVIDIA; install UCX 1.19 or newer, set UCX_IB_GID_INDEX to the index "
        "of an IPv6 address (/sys/class/infiniband/*/ports/*/gids), ",
        text, broken);
    if (healthy)
      found.warnings.push_back(problem + "or name the other ports in UCX_NET_DEVICES");
    else
      found.refusal = problem + "or disable RDMA by UCX_TLS=^ib";
  }
  if (!used.empty() && version < kSurvivesTimeouts)
    found.warnings.push_back(
        fmt::format("UCX {} has RDMA ports ({}): before 1.14 it ends this process when a peer dies while "
                    "connections are established; install UCX 1.19 or newer",
                    text, used));
  return found;
}

}  // namespace ringmaster::fabric::ucx
