// SPDX-License-Identifier: Apache-2.0

// Frames: a 4-byte big-endian length, then a JSON object with a "type" member. The same on TCP between agents
// and the coordinator and on the inner channel between an agent and its trainer. Pure; no limits are trusted
// to the sender.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

inline constexpr size_t kMaxFrameBytes = size_t{16} << 20;

// A whole frame, length included.
std::string Encode(const Message& message);

// The JSON part alone. kInvalid names the member that is missing or wrong. Unknown members are ignored (newer
// peers).
Result<Message> DecodeBody(std::string_view json);

// Cuts a byte stream into messages, however it was split. After an error the stream is lost: close it.
class Decoder {
 public:
  void Feed(std::string_view bytes);
  // nullopt: more bytes are needed.
  Result<std::optional<Message>> Next();

 private:
  std::string buffer_;
  size_t begin_ = 0;
};

}  // namespace ringmaster::rendezvous
