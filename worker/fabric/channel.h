// SPDX-License-Identifier: Apache-2.0

// The traffic with one peer in one generation, without I/O: puts messages back in order, delivers them to
// posted receives, and limits the messages in flight to a window, so that a fast sender cannot fill a slow
// receiver's memory.
//
// A sender is at most kWindow messages ahead of what the receiver has delivered, and sends no more once
// kWindowBytes are in flight: data in socket buffers should still be in a cache when it is read. The receiver
// reports its progress (credit) with any message it sends to the peer anyway, or in a separate message
// after a part of the window. That part is smaller than what stops a sender.
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

// Not thread-safe.
class Channel {
 public:
  static constexpr uint64_t kWindow = 32;
  static constexpr uint64_t kWindowBytes = 768 << 10;
  static constexpr uint64_t kCreditEvery = kWindow / 4;
  static constexpr uint64_t kCreditBytes = kWindowBytes / 2;

  // --- sending ---
  void Queue(Tag tag, std::span<const std::byte> data);
  // Returns the next message that the window permits, and counts it as sent.
  std::optional<Outgoing> Next();
  bool drained() const { return queue_.empty(); }
  uint64_t queued() const { return queued_; }
  uint64_t sent() const { return sent_; }
  // The peer has delivered its first `delivered` messages.
  void OnCredit(uint64_t delivered);

  // --- receiving ---
  Status Post(Tag tag, const PostedReceive& receive);
  // Delivers a message that arrived, in any order, or keeps a copy of it. kInternal: the peer runs another
  // operation.
  Status OnMessage(uint64_t sequence, Tag tag, std::span<const std::byte> message);
  uint64_t delivered() const { return delivered_; }
  // Returns the credit to send with a message to the peer.
  uint64_t TakeCredit();
  // Whether the credit must be sent now, even without another message.
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
  std::deque<size_t> in_flight_;  // bytes of each message that is sent and not credited
  uint64_t bytes_in_flight_ = 0;

  std::deque<Posted> posted_;
  std::map<uint64_t, Buffered> buffered_;  // by sequence: early, or without a posted receive
  std::vector<std::vector<std::byte>> spare_buffers_;
  uint64_t delivered_ = 0;
  uint64_t credit_sent_ = 0;
  uint64_t uncredited_bytes_ = 0;
};

}  // namespace ringmaster::fabric
