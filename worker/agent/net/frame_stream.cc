// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/net/frame_stream.h"

namespace ringmaster::agent {

Status FrameStream::SendRaw(std::string_view frames) {
  if (unsent_.size() + frames.size() > kMaxUnsentBytes) {
    return Error{Code::kExhausted, "the other side does not read"};
  }
  unsent_ += frames;
  return Flush();
}

Status FrameStream::Flush() {
  size_t sent = 0;
  Status status;
  while (sent < unsent_.size()) {
    const Result<size_t> put = channel_->Send(unsent_.data() + sent, unsent_.size() - sent);
    if (!put.ok()) status = put.error();
    if (!put.ok() || put.value() == 0) break;
    sent += put.value();
  }
  unsent_.erase(0, sent);
  return status;
}

Status FrameStream::Receive() {
  char chunk[16 << 10];
  while (true) {
    RM_ASSIGN(const size_t got, channel_->Receive(chunk, sizeof chunk));
    if (got == 0) return Ok();
    decoder_.Feed(std::string_view(chunk, got));
  }
}

}  // namespace ringmaster::agent
