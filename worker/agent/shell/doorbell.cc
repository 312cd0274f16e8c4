// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/shell/doorbell.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace ringmaster::agent {
namespace {

Result<std::pair<Fd, Fd>> Pair(int type) {
  int ends[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return ErrnoError("socketpair", errno);
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

// A message of one byte and one descriptor.
struct Parcel {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {nullptr, 0, &data, 1, control, sizeof control, 0};
};

}  // namespace

Result<std::pair<Fd, Fd>> MakeDoorbell() { return Pair(SOCK_SEQPACKET); }

Result<Fd> RingDoorbell(int doorbell) {
  RM_ASSIGN(auto ends, Pair(SOCK_STREAM));
  Parcel parcel;
  cmsghdr* const header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int other = ends.second.get();
  std::memcpy(CMSG_DATA(header), &other, sizeof other);
  if (::sendmsg(doorbell, &parcel.message, MSG_NOSIGNAL) != 1) return ErrnoError("the relay", errno);
  return std::move(ends.first);
}

bool IsDoorbellAnswered(int doorbell) {
  int waiting = 0;
  return ::ioctl(doorbell, SIOCOUTQ, &waiting) == 0 && waiting == 0;
}

Fd AnswerDoorbell(int doorbell) {
  Parcel parcel;
  if (::recvmsg(doorbell, &parcel.message, MSG_CMSG_CLOEXEC) != 1) return Fd();
  const cmsghdr* const header = CMSG_FIRSTHDR(&parcel.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return Fd();
  int received = -1;
  std::memcpy(&received, CMSG_DATA(header), sizeof received);
  return Fd(received);
}

}  // namespace ringmaster::agent
