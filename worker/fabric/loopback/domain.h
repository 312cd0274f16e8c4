// SPDX-License-Identifier: Apache-2.0

// A network inside one process, for tests: each rank is a thread, time is virtual, and everything that
// happens is a function of the seed.
//
// Messages are delivered only when all ranks wait, one at a time, in the order of their virtual arrival; the
// random delays reorder freely, even messages of one pair. When all ranks wait and nothing is under way, no
// deadline would ever be met by waiting on: all of them get kDeadlineExceeded at once.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "worker/fabric/channel.h"
#include "worker/fabric/transport.h"

namespace ringmaster::fabric::loopback {

struct NetworkOptions {
  int world = 1;
  uint64_t seed = 0;
  uint64_t max_delay = 0;  // of a message, in virtual ticks; 0: first sent, first delivered
  size_t segment_bytes = 4096;
  // This rank ends instead of sending its message number `end_at` (credits count too).
  std::optional<int> victim;
  uint64_t end_at = 0;
  // Its peers are told of the end; else it just falls silent.
  bool announced = true;
};

class Domain {
 public:
  explicit Domain(const NetworkOptions& options);

  // Each rank once, before the threads start.
  std::unique_ptr<Transport> Connect(int rank);

  // Every operation, at all ranks, ends with kCancelled. Any thread.
  void Abort();

  // Messages that `rank` has sent: how far end_at can go.
  uint64_t messages(int rank);

 private:
  friend class LoopbackTransport;

  enum class EventKind : uint8_t { kMessage, kCredit, kEnd };
  struct Event {
    EventKind kind = EventKind::kMessage;
    int from = 0;
    int to = 0;
    uint64_t sequence = 0;  // or the credit
    Tag tag;
    std::vector<std::byte> bytes;
  };
  struct Rank {
    std::vector<Channel> channels;  // by peer
    std::vector<uint64_t> waited;   // landings already handed out, by peer
    std::condition_variable changed;
    bool waiting = false;
    bool left = false;   // its transport is gone, or it has ended
    bool ended = false;  // the victim
    std::optional<Error> failure;
    uint64_t messages = 0;
  };

  // All under mutex_.
  Status Push(int from, Event event);
  Status Pump(int rank);
  void Deliver(Event event);
  void AdvanceIfAllWait();
  void Wake(Rank& rank);
  // Waits until `ready(rank)`; lets time pass when all ranks wait.
  template <class Ready>
  Status WaitUntil(std::unique_lock<std::mutex>& lock, int rank, const Ready& ready);

  const NetworkOptions options_;
  std::mutex mutex_;
  std::vector<Rank> ranks_;
  // By (arrival, sender, its message number): an order that does not depend on how the threads ran.
  std::map<std::tuple<uint64_t, int, uint64_t>, Event> events_;
  uint64_t now_ = 0;
  bool aborted_ = false;
};

}  // namespace ringmaster::fabric::loopback
