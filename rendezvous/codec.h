// SPDX-License-Identifier: Apache-2.0

// Encodes messages as frames: a 4-byte big-endian length, then a JSON object with a "type" member. The TCP
// connection between agent and coordinator and the channel between agent and trainer use the same frames.
// Pure functions; the decoder enforces all limits and trusts no sender.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

inline constexpr size_t kMaxFrameBytes = size_t{16} << 20;

// Returns a whole frame, including its length.
std::string Encode(const Message& message);

// Decodes the JSON part of a frame. Errors: kInvalid names the member that is missing or wrong. Unknown
// members are ignored: a newer peer may send them.
Result<Message> DecodeBody(std::string_view json);

// Splits a byte stream into messages. Not thread-safe. After an error the stream is unusable: close it.
class Decoder {
 public:
  void Feed(std::string_view bytes);
  // Returns nullopt when more bytes are needed.
  Result<std::optional<Message>> Next();

 private:
  std::string buffer_;
  size_t begin_ = 0;
};

}  // namespace ringmaster::rendezvous
