// SPDX-License-Identifier: Apache-2.0

// Which network NCCL really uses, parsed from its log: no API reports that. Without RDMA, NCCL falls back to
// sockets and says so only at level INFO, and training is ten times slower. Pure functions.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ringmaster::fabric::nccl {

struct NetFacts {
  std::string network;               // used between machines: "IB", "Socket", "AWS Libfabric"
  std::vector<std::string> devices;  // of that network: "mlx5_0:1", "eth0"
  std::set<std::string> transports;  // of the channels logged so far: "p2p", "shm", "ib", "ib-gdr", "socket"
  bool no_ib_device = false;
  std::string missing_plugin;  // "libnccl-net.so", when NCCL did not find it
  std::string gdr_off;         // NCCL's message about GPU Direct RDMA, if it is disabled
  bool operator==(const NetFacts&) const = default;
};

// Adds the facts of one line of NCCL's log, of any kind.
void ParseLogLine(NetFacts* facts, std::string_view line);

// Returns what carries gradients: "nccl:p2p+ib-gdr". Before the first channel is logged it is "nccl" on one
// host, else "nccl:" and the network.
std::string TransportName(const NetFacts& facts, bool one_host);

// Returns why NCCL may be using sockets, and what to do, for a user who asked for RDMA.
std::string WhySockets(const NetFacts& facts);

}  // namespace ringmaster::fabric::nccl
