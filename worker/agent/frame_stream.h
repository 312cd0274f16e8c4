// SPDX-License-Identifier: Apache-2.0

// Messages over a non-blocking stream socket: the frames of rendezvous/codec.h, with a bounded buffer for
// what the other side does not take yet. Main thread only.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "rendezvous/codec.h"
#include "worker/agent/byte_channel.h"

namespace ringmaster::agent {

class FrameStream {
 public:
  static constexpr size_t kMaxUnsentBytes = size_t{32} << 20;

  explicit FrameStream(Fd fd) : channel_(MakePlainChannel(std::move(fd))) {}
  explicit FrameStream(std::unique_ptr<ByteChannel> channel) : channel_(std::move(channel)) {}

  int fd() const { return channel_->fd(); }
  bool wants_write() const { return !unsent_.empty(); }

  // Queues and writes what goes. kExhausted when the other side has not read for too long; close then.
  Status Send(const rendezvous::Message& message);
  Status Flush();

  // Reads what is there. kGone at the end of the stream: Next still gives the messages that came before.
  Status Receive();
  // nullopt: no whole message is there. An error means the stream is lost.
  Result<std::optional<rendezvous::Message>> Next() { return decoder_.Next(); }

 private:
  std::unique_ptr<ByteChannel> channel_;
  rendezvous::Decoder decoder_;
  std::string unsent_;
};

}  // namespace ringmaster::agent
