// SPDX-License-Identifier: Apache-2.0

#include <sys/socket.h>

#include <cerrno>

#include "base/file.h"
#include "worker/agent/net/byte_channel.h"

namespace ringmaster::agent {
namespace {

class PlainChannel final : public ByteChannel {
 public:
  explicit PlainChannel(Fd fd) : fd_(std::move(fd)) {}
  int fd() const override { return fd_.get(); }
  Result<bool> Handshake() override { return true; }

  Result<size_t> Send(const char* data, size_t size) override {
    return Moved(::send(fd_.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT), "send");
  }
  Result<size_t> Receive(char* into, size_t size) override {
    const ssize_t got = ::recv(fd_.get(), into, size, MSG_DONTWAIT);
    if (got == 0) return Error{Code::kGone, "closed by the other side"};
    return Moved(got, "receive");
  }

 private:
  static Result<size_t> Moved(ssize_t bytes, const char* what) {
    if (bytes >= 0) return static_cast<size_t>(bytes);
    if (errno == EAGAIN || errno == EINTR) return size_t{0};
    return ErrnoError(what, errno);
  }
  Fd fd_;
};

}  // namespace

std::unique_ptr<ByteChannel> MakePlainChannel(Fd fd) { return std::make_unique<PlainChannel>(std::move(fd)); }

}  // namespace ringmaster::agent
