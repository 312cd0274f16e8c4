#include "worker/agent/frame_stream.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/file.h"

namespace ringmaster::agent {

Status FrameStream::Send(const rendezvous::Message& message) {
  const std::string frame = rendezvous::Encode(message);
  if (unsent_.size() + frame.size() > kMaxUnsentBytes) {
    return Error{Code::kExhausted, "the other side does not read"};
  }
  unsent_ += frame;
  return Flush();
}

Status FrameStream::Flush() {
  size_t sent = 0;
  Status status;
  while (sent < unsent_.size()) {
    const ssize_t put =
        ::send(fd_.get(), unsent_.data() + sent, unsent_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      if (errno != EAGAIN) status = ErrnoError("send", errno);
      break;
    }
    sent += static_cast<size_t>(put);
  }
  unsent_.erase(0, sent);
  return status;
}

Status FrameStream::Receive() {
  char chunk[16 << 10];
  while (true) {
    const ssize_t got = ::recv(fd_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Ok();
    if (got < 0) return ErrnoError("receive", errno);
    if (got == 0) return Error{Code::kGone, "closed by the other side"};
    decoder_.Feed(std::string_view(chunk, static_cast<size_t>(got)));
  }
}

}  // namespace ringmaster::agent
