// SPDX-License-Identifier: Apache-2.0

// What NCCL really uses, learnt from what it writes about itself: it tells nobody else. Where RDMA is not to
// be had it takes sockets without a word above its level INFO, and training is ten times slower. Pure.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ringmaster::fabric::nccl {

struct NetFacts {
  std::string network;               // "IB", "Socket", "AWS Libfabric": what it uses between machines
  std::vector<std::string> devices;  // of that: "mlx5_0:1", "eth0"
  std::set<std::string> transports;  // of channels seen so far: "p2p", "shm", "ib", "ib-gdr", "socket"
  bool no_ib_device = false;
  std::string missing_plugin;  // "libnccl-net.so", when one was named or expected
  std::string gdr_off;         // NCCL's sentence about GPU Direct RDMA, if it does without
  bool operator==(const NetFacts&) const = default;
};

// One line of NCCL's log, of any kind.
void ParseLogLine(NetFacts* facts, std::string_view line);

// "nccl:p2p+ib-gdr": what carries gradients. Before any channel is seen: the network when `one_host` is
// false, else "nccl".
std::string TransportName(const NetFacts& facts, bool one_host);

// Why it may be sockets that it uses, and what to do: for whoever asked for RDMA.
std::string WhySockets(const NetFacts& facts);

}  // namespace ringmaster::fabric::nccl
