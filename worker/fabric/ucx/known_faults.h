// SPDX-License-Identifier: Apache-2.0

// The faults of UCX's releases that concern RDMA ports of this machine. Each was observed over Soft-RoCE, or
// is fixed by a change of UCX that names it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ringmaster::fabric::ucx {

// An active port that this process may open.
struct RdmaPort {
  std::string name;     // "rxe0:1"
  bool nvidia = false;  // the vendor of the device
  bool ethernet = false;
  bool ipv4 = false;  // UCX prefers an IPv4 address of a RoCE port
};

struct KnownFaults {
  std::optional<std::string> refusal;  // all ports have a fault: no connection would ever be established
  std::vector<std::string> warnings;
};

using Variables = std::function<std::optional<std::string>(const std::string& name)>;

// Reads /sys and /dev below `root`.
std::vector<RdmaPort> ReadRdmaPorts(const std::string& root);

// `version`: major and minor number of the loaded UCX. `text`: the same for messages. Ports that UCX_TLS or
// UCX_NET_DEVICES exclude do not count.
KnownFaults FindKnownFaults(std::pair<unsigned, unsigned> version, const std::string& text,
                            const std::vector<RdmaPort>& ports, const Variables& variables);

}  // namespace ringmaster::fabric::ucx
