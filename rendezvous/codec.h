// SPDX-License-Identifier: Apache-2.0

// Encodes messages as frames: a 4-byte big-endian length, then a JSON object with a "type" member. The TCP
// connection between agent and coordinator and the channel between agent and trainer use the same frames.
//
// On a connection that the slots of a pod share, a route precedes each frame: the slots that it is from, or
// for. A route is a 4-byte big-endian number with the highest bit set and the size of a bitmap in the others,
// then the bitmap: bit s % 8 of byte s / 8 is slot s.
//
// Pure functions; the decoder enforces all limits and trusts no sender.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rendezvous/messages.h"

namespace ringmaster::rendezvous {

// Limits of every field, enforced by the decoder. The encoder cuts texts, names and lists of texts
// to their limits, and replaces what is not UTF-8.
inline constexpr size_t kMaxNameBytes = 512;          // names and ids, in ASCII without quotes
inline constexpr size_t kMaxAddressBytes = 14 << 10;  // as JSON
inline constexpr size_t kMaxSecretBytes = 32 << 10;
inline constexpr size_t kMaxKeyBytes = 128;
inline constexpr size_t kMaxTextBytes = 8 << 10;
inline constexpr size_t kMaxRecords = 4096;
inline constexpr size_t kMaxDeviceFaults = 16;
inline constexpr size_t kMaxMembers = 4096;
inline constexpr size_t kMaxRankCounts = 4096;
inline constexpr int64_t kMaxCount = int64_t{1}
                                     << 53;  // steps and samples: sums and differences do not overflow

inline constexpr int32_t kMaxLife = 1'000'000;  // the coordinator counts on from what an agent reports

inline constexpr int32_t kMaxSlots = 1000;

// Limits of a frame: from an agent, and in all.
inline constexpr size_t kMaxAgentFrameBytes = size_t{1} << 20;
inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;
// A NewGeneration of as many members as allowed, all with the longest names and addresses, fits a frame.
static_assert(kMaxMembers * (kMaxAddressBytes + 3 * kMaxNameBytes + kMaxKeyBytes + 64) + (1 << 20) <=
              kMaxFrameBytes);

// Returns a whole frame, including its length.
std::string Encode(const Message& message);

// REQUIRES: `slots` is not empty; each is below kMaxSlots.
std::string EncodeRoute(const std::vector<int32_t>& slots);

// Decodes the JSON part of a frame. Errors: kInvalid names the member that is missing or wrong. Unknown
// members are ignored: a newer peer may send them.
Result<Message> DecodeBody(std::string_view json);

// Splits a byte stream into messages. Not thread-safe. After an error the stream is unusable: close it.
class Decoder {
 public:
  explicit Decoder(size_t max_frame_bytes = kMaxFrameBytes) : max_frame_bytes_(max_frame_bytes) {}
  void Feed(std::string_view bytes);
  // Returns nullopt when more bytes are needed.
  Result<std::optional<Message>> Next();
  // The same without decoding it: the whole frame, valid until the next call of any function.
  Result<std::optional<std::string_view>> NextFrame();
  // The route of what was returned last, ascending; empty: none.
  const std::vector<int32_t>& slots() const { return slots_; }
  // Bytes that it holds. After Next has returned nullopt: of a message that is not complete.
  size_t buffered() const { return buffer_.size() - begin_; }

 private:
  size_t max_frame_bytes_;
  std::string buffer_;  // freed when all of it is decoded: most connections are idle
  size_t begin_ = 0;
  std::vector<int32_t> slots_;
  std::vector<int32_t> next_slots_;
};

}  // namespace ringmaster::rendezvous
