// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/ucx/tcp_health.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdlib>
#include <memory>

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

bool Unacknowledged(int fd, Duration limit) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;  // not a TCP socket
  // Probes of a full receive window count like repeated data: a live peer acknowledges both at once.
  const bool repeats =
      info.tcpi_retransmits > kLucklessRepetitions || info.tcpi_probes > kLucklessRepetitions;
  return info.tcpi_state == TCP_ESTABLISHED && repeats && milliseconds(info.tcpi_last_ack_recv) > limit;
}

}  // namespace

std::string FindUnacknowledged(Duration limit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (folder == nullptr) return "";
  while (const dirent* const entry = ::readdir(folder.get())) {
    const int fd = std::atoi(entry->d_name);  // "." and "..": 0, which is no socket
    if (Unacknowledged(fd, limit)) return RemoteAddress(fd);
  }
  return "";
}

}  // namespace ringmaster::fabric::ucx
