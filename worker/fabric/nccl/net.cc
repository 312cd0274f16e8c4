// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace ringmaster::fabric::nccl {
namespace {

// Returns the text after `mark` in `line`; empty when `line` does not contain it.
std::string_view After(std::string_view line, std::string_view mark) {
  const size_t at = line.find(mark);
  return at == std::string_view::npos ? std::string_view() : line.substr(at + mark.size());
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

// "AWS Libfabric" -> "aws_libfabric": a single word for logs and metrics.
std::string Word(std::string_view name) {
  std::string word;
  for (const char letter : Trimmed(name)) {
    const auto byte = static_cast<unsigned char>(letter);
    word += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '_';
  }
  return word;
}

// " [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>" -> the devices. Socket devices have an
// address instead of a port: "[0]eth0:10.0.0.1<0>".
std::vector<std::string> Devices(std::string_view list) {
  std::vector<std::string> devices;
  list = list.substr(0, list.find(';'));
  while (true) {
    const size_t open = list.find('[');
    if (open == std::string_view::npos) return devices;
    const size_t close = list.find(']', open);
    if (close == std::string_view::npos) return devices;
    const std::string_view index = list.substr(open + 1, close - open - 1);
    list.remove_prefix(close + 1);
    const bool is_number =
        !index.empty() && std::ranges::all_of(index, [](char digit) { return digit >= '0' && digit <= '9'; });
    if (!is_number) continue;
    std::string_view device = list.substr(0, list.find_first_of(" /["));
    if (device.find('<') != std::string_view::npos) device = device.substr(0, device.find(':'));
    if (!device.empty()) devices.emplace_back(device);
  }
}

}  // namespace

void ParseLogLine(NetFacts* facts, std::string_view line) {
  line = Trimmed(line);
  if (const auto network = After(line, "Using network "); !network.empty()) {
    facts->network = Trimmed(network);
  } else if (const auto way = After(After(line, "Channel "), " via "); !way.empty()) {
    if (way.starts_with("P2P")) {
      facts->transports.insert("p2p");
    } else if (way.starts_with("SHM")) {
      facts->transports.insert("shm");
    } else if (way.starts_with("NET/")) {
      const std::string_view net = way.substr(4);
      const std::string name = Word(net.substr(0, net.find('/')));
      facts->transports.insert(way.find("/GDRDMA") == std::string_view::npos ? name : name + "-gdr");
    }
  } else if (line.find("NET/IB : No device found") != std::string_view::npos) {
    facts->no_ib_device = true;
  } else if (const auto using_ib = After(line, "NET/IB : Using"); !using_ib.empty()) {
    facts->devices = Devices(using_ib);
  } else if (const auto using_sockets = After(line, "NET/Socket : Using"); !using_sockets.empty()) {
    if (facts->devices.empty()) facts->devices = Devices(using_sockets);
  } else if (const auto missing = After(line, "NET/Plugin: Could not find:"); !missing.empty()) {
    facts->missing_plugin = Trimmed(missing);
  } else if (const auto gdr = After(line, "GPU Direct RDMA Disabled for"); !gdr.empty()) {
    facts->gdr_off = fmt::format("GPU Direct RDMA disabled for{}", gdr);
  }
}

std::string TransportName(const NetFacts& facts, bool one_host) {
  if (!facts.transports.empty()) return fmt::format("nccl:{}", fmt::join(facts.transports, "+"));
  return one_host || facts.network.empty() ? "nccl" : "nccl:" + Word(facts.network);
}

std::string WhySockets(const NetFacts& facts) {
  if (!facts.missing_plugin.empty() && !facts.no_ib_device)
    return fmt::format(
        "NCCL did not find its net plugin {}: is it in the image and in LD_LIBRARY_PATH, and of "
        "the version that the nodes run?",
        facts.missing_plugin);
  if (facts.no_ib_device)
    return "NCCL found no InfiniBand or RoCE device: is /dev/infiniband in the pod (spec.network.rdma."
           "resource), is a port ACTIVE, does NCCL_IB_HCA name a device that exists, is NCCL_IB_DISABLE set?";
  return "NCCL chose sockets although it has other devices: is NCCL_NET set?";
}

}  // namespace ringmaster::fabric::nccl
