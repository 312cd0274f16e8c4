// SPDX-License-Identifier: Apache-2.0

// The header of every active message. Plain data; both sides run the same build on little-endian hosts.
#pragma once

#include <cstdint>

namespace ringmaster::fabric::ucx {

enum class Kind : uint16_t {
  kHello,    // the sender has entered `generation`; payload: its uuid
  kWelcome,  // the sender has received our hello for `generation`; payload: its uuid
  kData,     // payload: message number `sequence` of the sender's channel to us
  kCredit,   // no payload; carries `delivered`
  kStop,     // the sender gave up `generation`
  kWaiting,  // no payload, or an empty one; the sender is in its wait number `sequence` for peers (stall.h)
  kMarker,   // nothing: UCX takes it when the system has taken the message before it (Endpoint::Flushed)
  // Of rma/:
  kExpose,       // payload: a DataLocation; the sender has reached its exposure number `sequence`
  kSend,         // payload: a DataLocation; the sender's data number `sequence` for us
  kAcknowledge,  // the sender has read our data number `sequence`
};

struct Header {
  uint64_t generation;
  uint64_t sequence;
  uint32_t operation;
  uint32_t step;
  int32_t rank;  // of the sender; -1: no longer a member
  Kind kind;
  uint16_t reserved;
  uint64_t delivered = 0;  // of kData and kCredit: the number of our messages that the sender has delivered
  uint64_t bytes = 0;      // of kData: of the whole operation
  uint32_t call = 0;       // of kData and kExpose: what the sender calls (operation.h)
  uint32_t unused = 0;
};
static_assert(sizeof(Header) == 56);

}  // namespace ringmaster::fabric::ucx
