// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/program/progress_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>

#include "base/check.h"
#include "worker/agent/net/unix_address.h"

namespace ringmaster::agent {
namespace {

constexpr int kMaxMessagesPerRead = 64;  // other events wait meanwhile
constexpr mode_t kOwnerOnly = 0600;

}  // namespace

Result<ProgressSocket> ProgressSocket::Open(const std::string& folder, std::string_view name) {
  ProgressSocket out;
  out.path_ = folder + std::string(name);
  static_assert(kLongestPath < sizeof sockaddr_un::sun_path);
  CHECK(out.path_.size() <= kLongestPath, "{}", out.path_);
  RM_ASSIGN(const sockaddr_un address, UnixAddress(out.path_));
  out.socket_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // The folder keeps other users away until the mode is set.
  if (!out.socket_.valid() ||
      ::bind(out.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(out.path_.c_str(), kOwnerOnly) != 0)
    return ErrnoError("create the socket " + out.path_, errno);
  return out;
}

void ProgressSocket::Read(const std::function<void(std::string_view)>& take) {
  std::array<char, kMaxMessage> message;
  for (int i = 0; i < kMaxMessagesPerRead; ++i) {
    const ssize_t got = ::recv(socket_.get(), message.data(), message.size(), MSG_TRUNC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;
    const auto size = static_cast<size_t>(got);
    if (size <= message.size()) take({message.data(), size});
  }
}

}  // namespace ringmaster::agent
