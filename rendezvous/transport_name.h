// SPDX-License-Identifier: Apache-2.0

// What carries gradients, as trainers measure it and people read it: "none" (one worker alone), "shm" (memory
// of one host), "ucx:" and the names of UCX's transports, joined by "+": "ucx:rc_mlx5+cma", "ucx:tcp"; or
// "nccl:" and what NCCL uses between GPUs: "nccl:ib-gdr+p2p", "nccl:socket".
#pragma once

#include <string_view>

namespace ringmaster::rendezvous {

// Some of it goes through the kernel's TCP: where RDMA was asked for, this is the fallback that nobody sees.
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
