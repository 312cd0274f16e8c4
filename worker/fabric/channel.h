// SPDX-License-Identifier: Apache-2.0

// One peer's traffic in one generation, without I/O: puts messages back in order, lands them, and keeps the
// number under way within a window, so that a fast sender cannot fill a slow receiver's memory.
//
// A sender may be kWindow messages ahead of what the receiver has delivered, and sends no more once
// kWindowBytes are under way: what lies in sockets should still be in somebody's cache when it is taken out.
// The receiver's progress goes out with whatever is sent to the peer anyway, or by itself after a part of the
// window, which is less than what stops a sender. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "worker/fabric/transport.h"

namespace ringmaster::fabric {

struct Outgoing {
  uint64_t sequence = 0;
  Tag tag;
  std::span<const std::byte> data;
};

class Channel {
 public:
  static constexpr uint64_t kWindow = 32;
  static constexpr uint64_t kWindowBytes = 768 << 10;
  static constexpr uint64_t kCreditEvery = kWindow / 4;
  static constexpr uint64_t kCreditBytes = kWindowBytes / 2;

  // --- sending ---
  void Queue(Tag tag, std::span<const std::byte> data);
  // The next message that the window lets go.
  std::optional<Outgoing> Next();
  bool drained() const { return queue_.empty(); }
  uint64_t queued() const { return queued_; }
  uint64_t sent() const { return sent_; }
  // The peer has delivered its first `delivered` messages.
  void OnCredit(uint64_t delivered);

  // --- receiving ---
  Status Post(Tag tag, const PostedReceive& receive);
  // A message came in, in whatever order; lands it now or keeps a copy. kInternal: the peer runs something
  // else.
  Status OnMessage(uint64_t sequence, Tag tag, std::span<const std::byte> message);
  uint64_t delivered() const { return delivered_; }
  // What to tell the peer with a message that goes there.
  uint64_t TakeCredit();
  // It is time to tell the peer even without one.
  bool CreditDue() const;

 private:
  struct Posted {
    Tag tag;
    PostedReceive receive;
  };
  struct Buffered {
    Tag tag;
    std::vector<std::byte> bytes;
  };
  Status DeliverNext(Tag tag, std::span<const std::byte> message);

  std::deque<Outgoing> queue_;
  uint64_t queued_ = 0;
  uint64_t sent_ = 0;
  uint64_t credited_ = 0;
  std::deque<size_t> under_way_;  // bytes of each message that is sent and not credited
  uint64_t bytes_under_way_ = 0;

  std::deque<Posted> posted_;
  std::map<uint64_t, Buffered> buffered_;  // by sequence: early, or without a receive yet
  std::vector<std::vector<std::byte>> spare_buffers_;
  uint64_t delivered_ = 0;
  uint64_t credit_sent_ = 0;
  uint64_t uncredited_bytes_ = 0;
};

}  // namespace ringmaster::fabric
