// SPDX-License-Identifier: Apache-2.0

// The header of every active message. Plain data, little-endian hosts of the same build on both sides.
#pragma once

#include <cstdint>

namespace ringmaster::fabric::ucx {

enum class Kind : uint16_t {
  kHello,    // payload: uuid of the sender, who has entered `generation`
  kWelcome,  // payload: uuid of the sender, who has had our hello for `generation`
  kData,     // payload: message number `sequence` of the sender's channel to us
  kCredit,   // nothing but `delivered`
  kStop,     // the sender gave `generation` up
  // Of pulls (fabric/pull):
  kExpose,       // payload: a DataLocation; the sender has come to point number `sequence` of all
  kSend,         // payload: a DataLocation; number `sequence` of what the sender has for us
  kAcknowledge,  // we may have back what we sends_announced as number `sequence`
};

struct Header {
  uint64_t generation;
  uint64_t sequence;
  uint32_t operation;
  uint32_t step;
  int32_t rank;  // of the sender; -1: not a member any more
  Kind kind;
  uint16_t reserved;
  uint64_t delivered = 0;  // of kData and kCredit: so many messages of ours
};
static_assert(sizeof(Header) == 40);

}  // namespace ringmaster::fabric::ucx
