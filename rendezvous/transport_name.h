// What carries gradients, as trainers measure it and people read it: "none" (one worker alone), "shm" (memory
// of one host), or "ucx:" and the names of UCX's transports, joined by "+": "ucx:rc_mlx5+cma", "ucx:tcp".
#pragma once

#include <string_view>

namespace ringmaster::rendezvous {

// Some of it goes through the kernel's TCP: where RDMA was asked for, this is the fallback that nobody sees.
inline bool UsesTcp(std::string_view transport) {
  constexpr std::string_view kPrefix = "ucx:";
  if (!transport.starts_with(kPrefix)) return false;
  transport.remove_prefix(kPrefix.size());
  while (true) {
    const size_t plus = transport.find('+');
    if (transport.substr(0, plus) == "tcp") return true;
    if (plus == std::string_view::npos) return false;
    transport.remove_prefix(plus + 1);
  }
}

}  // namespace ringmaster::rendezvous
