// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/ucx/tcp_health.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

namespace ringmaster::fabric::ucx {
namespace {

// Repetitions that a live peer may leave unanswered, in an unlucky moment.
constexpr int kLucklessRepetitions = 2;

std::string RemoteAddress(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "an unknown address";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return fmt::format("{}:{}", text, ntohs(v4->sin_port));
  }
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  return fmt::format("[{}]:{}", text, ntohs(v6->sin6_port));
}

std::optional<tcp_info> Info(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return info;
}

bool Unacknowledged(const tcp_info& info, Duration limit) {
  constexpr uint8_t kEstablished = 1;  // TCP_ESTABLISHED; the header that has it lacks bytes_acked
  // Probes of a full receive window count like repeated data: a live peer acknowledges both at once.
  const bool repeats =
      info.tcpi_retransmits > kLucklessRepetitions || info.tcpi_probes > kLucklessRepetitions;
  return info.tcpi_state == kEstablished && repeats && milliseconds(info.tcpi_last_ack_recv) > limit;
}

bool IsTcpSocket(int fd) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  return ::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
}

void AddWatched(int fd, int depth, std::vector<int>* sockets) {
  // "tfd:       17 events:       19 data:  ..." per watched descriptor of an epoll instance.
  constexpr std::string_view kLine = "tfd:";
  constexpr int kDepth = 4;  // UCX's worker watches one instance per network device
  const std::unique_ptr<FILE, int (*)(FILE*)> info(
      std::fopen(fmt::format("/proc/self/fdinfo/{}", fd).c_str(), "re"), std::fclose);
  if (info == nullptr || depth > kDepth) return;
  char line[256];
  while (std::fgets(line, sizeof line, info.get()) != nullptr) {
    if (std::string_view(line).substr(0, kLine.size()) != kLine) continue;
    const int watched = std::atoi(line + kLine.size());
    if (IsTcpSocket(watched)) {
      sockets->push_back(watched);
    } else {
      AddWatched(watched, depth + 1, sockets);
    }
  }
}

}  // namespace

std::vector<int> WatchedSockets(int epoll_fd) {
  std::vector<int> sockets;
  AddWatched(epoll_fd, 0, &sockets);
  return sockets;
}

TcpHealth::TcpHealth(const std::vector<int>& sockets) {
  for (const int fd : sockets) {
    int unacknowledged = 0;
    const auto info = Info(fd);
    if (info && ::ioctl(fd, SIOCOUTQ, &unacknowledged) == 0)
      written_[fd] = info->tcpi_bytes_acked + static_cast<uint64_t>(unacknowledged);
  }
}

std::string TcpHealth::FindUnacknowledged(const std::vector<int>& sockets, Duration limit) const {
  for (const int fd : sockets) {
    const auto info = Info(fd);
    if (!info || !Unacknowledged(*info, limit)) continue;
    const auto before = written_.find(fd);
    if (info->tcpi_bytes_acked > (before == written_.end() ? 0 : before->second)) return RemoteAddress(fd);
  }
  return "";
}

}  // namespace ringmaster::fabric::ucx
