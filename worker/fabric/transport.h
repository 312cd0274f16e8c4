// SPDX-License-Identifier: Apache-2.0

// Messages between the ranks of one generation; algorithms.h implements the collectives over them. ucx/
// implements Transport for networks, loopback/ for tests. shm/ needs no messages: its members read each
// other's memory.
//
// Order: messages of one peer are delivered in the order in which that peer sent them. There is no order
// between peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "worker/fabric/combine.h"
#include "worker/fabric/operation.h"

namespace ringmaster::fabric {

// Travels with every message. The receiver compares it with the tag it expects, so that ranks which do not
// run the same operation notice.
struct Tag {
  Operation operation;
  uint32_t step = 0;
  bool operator==(const Tag&) const = default;
};

// Where a message goes, and how it is combined with the data there.
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

// Not thread-safe: used by the thread that calls the Communicator. Only Wait, WaitForSends and Flush make
// progress.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual uint64_t generation() const = 0;
  // Returns the size of the longest message, a multiple of 64.
  virtual size_t segment_bytes() const = 0;

  // Queues a message; never blocks. REQUIRES: `data` stays unchanged until WaitForSends or Flush returns, or
  // any call fails.
  virtual Status Send(int peer, Tag tag, std::span<const std::byte> data) = 0;

  // Posts a receive for the next message of `peer` that has none yet; never blocks. The message may be
  // delivered at any time from now on.
  virtual Status Post(int peer, Tag tag, const PostedReceive& receive) = 0;

  // Waits until the oldest receive from `peer` that Wait has not returned yet is filled.
  virtual Status Wait(int peer) = 0;

  // Waits until the caller may change the memory of all messages to `peer` except the newest `behind`.
  virtual Status WaitForSends(int peer, uint64_t behind) = 0;

  // Waits until every queued message has left: it needs no more progress from this process.
  virtual Status Flush() = 0;

  // As Communicator::ShowWait.
  virtual void ShowWait() const {}
};

}  // namespace ringmaster::fabric
