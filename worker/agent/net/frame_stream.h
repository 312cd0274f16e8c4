// SPDX-License-Identifier: Apache-2.0

// FrameStream sends and receives messages (frames of rendezvous/codec.h) over a non-blocking stream socket. A
// bounded buffer holds frames that the peer has not taken yet. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "rendezvous/codec.h"
#include "worker/agent/net/byte_channel.h"

namespace ringmaster::agent {

class FrameStream {
 public:
  // A peer that is a few messages behind reads; the largest one must fit.
  static constexpr size_t kMaxUnsentBytes = 2 * rendezvous::kMaxFrameBytes;

  explicit FrameStream(Fd fd) : channel_(MakePlainChannel(std::move(fd))) {}
  explicit FrameStream(std::unique_ptr<ByteChannel> channel) : channel_(std::move(channel)) {}

  int fd() const { return channel_->fd(); }
  bool wants_write() const { return !unsent_.empty(); }

  // Queues the message and writes as much as possible. Errors: kExhausted when the buffer is full because the
  // peer does not read; close then.
  Status Send(const rendezvous::Message& message) { return SendRaw(rendezvous::Encode(message)); }
  Status SendRaw(std::string_view frames);  // encoded already
  Status Flush();

  // Reads the available bytes. Errors: kGone at the end of the stream; Next still returns the messages before
  // it.
  Status Receive();
  // Returns the next message; nullopt: no complete one is available. After an error the stream is unusable.
  Result<std::optional<rendezvous::Message>> Next() { return decoder_.Next(); }
  // As Decoder's functions.
  Result<std::optional<std::string_view>> NextFrame() { return decoder_.NextFrame(); }
  const std::vector<int32_t>& slots() const { return decoder_.slots(); }

 private:
  std::unique_ptr<ByteChannel> channel_;
  rendezvous::Decoder decoder_;
  std::string unsent_;
};

}  // namespace ringmaster::agent
