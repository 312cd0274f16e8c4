// SPDX-License-Identifier: Apache-2.0

// Messages between the ranks of one generation: what the collectives of remote peers are written over.
// ucx/ implements it for networks, loopback/ for tests; shm/ has no messages, its members read each other's
// memory.
//
// Thread rule: one thread, the one that calls the Communicator. Progress is made in Wait, WaitForSends and
// Flush only.
//
// Order: messages of one peer land in the order in which that peer sent them. Between peers there is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "worker/fabric/combine.h"

namespace ringmaster::fabric {

// Travels with every message and is compared with what the receiver expects, so that ranks which do not run
// the same operation notice.
struct Tag {
  uint32_t operation = 0;
  uint32_t step = 0;
  bool operator==(const Tag&) const = default;
};

// What becomes of a message.
struct PostedReceive {
  enum class Action : uint8_t {
    kCopy,    // data = message
    kAppend,  // data = data + message
    kPrepend  // data = message + data
  };
  std::span<std::byte> data;  // exactly as long as the message
  Action action = Action::kCopy;
  Combiner combiner;
};

void Deliver(const PostedReceive& receive, const std::byte* message);

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual uint64_t generation() const = 0;
  // The longest message. A multiple of 64.
  virtual size_t segment_bytes() const = 0;

  // Queues a message; never blocks. `data` must stay as it is until WaitForSends or Flush, or
  // until any call has failed.
  virtual Status Send(int peer, Tag tag, std::span<const std::byte> data) = 0;

  // Says where the next message of `peer` that has no receive yet is to go; never blocks. It may land at any
  // time from now on.
  virtual Status Post(int peer, Tag tag, const PostedReceive& receive) = 0;

  // Until the oldest receive of `peer` that was not waited for yet is filled.
  virtual Status Wait(int peer) = 0;

  // Until the memory of all messages to `peer`, but for the newest `behind`, may change.
  virtual Status WaitForSends(int peer, uint64_t behind) = 0;

  // Until everything sent so far has left: it needs no more progress of ours.
  virtual Status Flush() = 0;
};

}  // namespace ringmaster::fabric
