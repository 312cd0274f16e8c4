// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/fabric/sockets.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/check.h"

namespace ringmaster::fabric::testing {

std::vector<int> TcpSockets() {
  std::vector<int> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    tcp_info info = {};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) sockets.push_back(fd);
  }
  return sockets;
}

void DropAllPackets(const std::vector<int>& sockets) {
  sock_filter drop = {.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
  const sock_fprog program = {.len = 1, .filter = &drop};
  for (const int fd : sockets)
    CHECK(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
}

bool RefuseConnections(int count, int error) {
  // The filter concerns this thread and those that it starts later, so the thread that answers is older.
  auto listener = std::make_shared<std::atomic<int>>(-1);
  std::thread([listener, count, error]() mutable {
    while (listener->load() < 0) std::this_thread::yield();
    seccomp_notif request = {};
    while (::ioctl(listener->load(), SECCOMP_IOCTL_NOTIF_RECV, &request) == 0) {
      seccomp_notif_resp response = {};
      response.id = request.id;
      if (count-- > 0) {
        response.error = -error;
      } else {
        response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      }
      ::ioctl(listener->load(), SECCOMP_IOCTL_NOTIF_SEND, &response);
      request = {};
    }
  }).detach();
  sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_connect},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program = {.len = 4, .filter = code};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  const long fd = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
  if (fd >= 0) listener->store(static_cast<int>(fd));
  return fd >= 0;
}

void OpenSilentConnection() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  CHECK(::bind(listener, any, size) == 0 && ::listen(listener, 1) == 0 &&
        ::getsockname(listener, any, &size) == 0);
  const int sender = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(::connect(sender, any, size) == 0);
  const int receiver = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  CHECK(receiver >= 0);
  DropAllPackets({receiver});
  CHECK(::send(sender, "lost", 4, MSG_NOSIGNAL) == 4);
}

}  // namespace ringmaster::fabric::testing
