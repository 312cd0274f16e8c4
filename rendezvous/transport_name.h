// SPDX-License-Identifier: Apache-2.0

// Names of the transports that carry gradients, as trainers measure them and users read them: "none" (a
// single worker); "shm" (shared memory of one host); "ucx:" and the names of UCX transports joined by "+",
// such as "ucx:rc_mlx5+cma" or "ucx:tcp"; "nccl:" and the transports that NCCL uses between GPUs, such as
// "nccl:ib-gdr+p2p" or "nccl:socket".
#pragma once

#include <string_view>

namespace ringmaster::rendezvous {

// Returns whether some of the traffic uses kernel TCP: where RDMA was requested, this is a silent fallback.
inline bool UsesTcp(std::string_view transport) {
  const size_t colon = transport.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view kernel_path = transport.substr(0, colon) == "nccl" ? "socket" : "tcp";
  while (!transport.empty()) {
    transport.remove_prefix(transport.find_first_of(":+") + 1);
    const size_t end = transport.find('+');
    if (transport.substr(0, end) == kernel_path) return true;
    if (end == std::string_view::npos) return false;
  }
  return false;
}

}  // namespace ringmaster::rendezvous
