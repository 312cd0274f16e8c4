// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/net/own_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace ringmaster::agent {

std::string InterfaceOf(const std::string& address) {
  in_addr wanted = {};
  if (::inet_pton(AF_INET, address.c_str(), &wanted) != 1) return "";
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

}  // namespace ringmaster::agent
