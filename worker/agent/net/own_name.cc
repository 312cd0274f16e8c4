// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/net/own_name.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/host_name.h"
#include "base/log.h"

namespace ringmaster::agent {
namespace {

constexpr const char* kRemedy =
    "its peers cannot reach a program that uses the name, such as PyTorch with gloo: add the name to "
    "/etc/hosts, or set GLOO_SOCKET_IFNAME";

bool IsLoopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr);
  const in_addr v4 = reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr;
  return ntohl(v4.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

}  // namespace

std::string OwnNameProblem(const std::string& pod, const std::string& name, const std::string& address,
                           const Result<std::vector<SocketAddress>>& found) {
  // All members are on one machine.
  if (address.starts_with("127.") || address == "::1") return "";
  if (!found.ok())
    return fmt::format("{} cannot resolve its own name {} ({}); {}", pod, name, found.error().message,
                       kRemedy);
  if (std::all_of(found->begin(), found->end(), IsLoopback))
    return fmt::format("{} resolves its own name {} to loopback only; {}", pod, name, kRemedy);
  return "";
}

void OwnNameCheck::Start(const std::string& pod, const std::string& address) {
  if (std::exchange(started_, true)) return;
  name_ = HostName();
  if (name_.empty()) return;
  pod_ = pod;
  address_ = address;
  resolver_.Start(name_, "0");
}

void OwnNameCheck::Advance() {
  const std::optional<Result<std::vector<SocketAddress>>> found = resolver_.Advance();
  if (!found) return;
  const std::string problem = OwnNameProblem(pod_, name_, address_, *found);
  if (!problem.empty()) log::Warn("{}", problem);
}

}  // namespace ringmaster::agent
