// SPDX-License-Identifier: Apache-2.0

// MpiChannel carries one remote command between `ringmaster-agent rsh` and the pod that runs it: frames of a
// type, a length of 4 bytes and a payload, over a ByteChannel. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "worker/agent/net/byte_channel.h"

namespace ringmaster::agent {

class MpiChannel {
 public:
  enum class Type : char {
    // To the pod. The command is first, once.
    kCommand = 'c',  // for `sh -c`
    kInput = 'i',    // for its standard input; empty: the end of it
    kSignal = 's',   // for its processes: the number, as text
    // From the pod. The exit is last, once.
    kOutput = 'o',  // of its standard output
    kErrors = 'e',  // of its standard error
    kExit = 'x',    // its exit code, as text
  };
  struct Frame {
    Type type;
    std::string payload;
  };

  static constexpr size_t kMaxPayload = size_t{256} << 10;
  // Who produces frames pauses while more than this is unsent.
  static constexpr size_t kMuchUnsent = size_t{256} << 10;

  explicit MpiChannel(std::unique_ptr<ByteChannel> channel) : channel_(std::move(channel)) {}

  int fd() const { return channel_->fd(); }
  // As ByteChannel::Handshake. REQUIRES: nothing is sent or received before it is complete.
  Result<bool> Handshake() { return channel_->Handshake(); }

  // REQUIRES: the payload has at most kMaxPayload bytes.
  void Queue(Type type, std::string_view payload);
  size_t unsent() const { return unsent_.size() - sent_; }
  Status Flush();

  // Reads the available bytes. Errors: kGone at the end of the stream; Next still returns the frames before
  // it.
  Status Receive();
  // Returns the next frame; nullopt: no complete one is available. Errors: kCorrupt.
  Result<std::optional<Frame>> Next();

 private:
  std::unique_ptr<ByteChannel> channel_;
  std::string unsent_;
  size_t sent_ = 0;  // of unsent_
  std::string received_;
};

}  // namespace ringmaster::agent
