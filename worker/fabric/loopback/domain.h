// SPDX-License-Identifier: Apache-2.0

// A network inside one process, for tests: each rank is a thread, time is virtual, and everything that
// happens is a function of the seed. The entry of loopback/.
//
// Messages are delivered only while all ranks wait, one at a time, in the order of their virtual arrival.
// Random delays reorder freely, even messages of one pair. When all ranks wait and no message is in flight,
// waiting longer cannot help: all ranks get kDeadlineExceeded at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "worker/fabric/channel.h"
#include "worker/fabric/transport.h"

namespace ringmaster::fabric::loopback {

struct NetworkOptions {
  int world = 1;
  uint64_t seed = 0;
  uint64_t max_delay =
      0;  // of a message, in virtual ticks; 0: messages are delivered in the order of sending
  size_t segment_bytes = 4096;
  // This rank ends instead of sending its message number `end_at` (credits count, too).
  std::optional<int> victim;
  uint64_t end_at = 0;
  // Its peers are notified of the end; if false, it just stops sending.
  bool announced = true;
};

// Thread-safe.
class Domain {
 public:
  explicit Domain(const NetworkOptions& options);

  // REQUIRES: called once per rank, before the threads start.
  std::unique_ptr<Transport> Connect(int rank);

  // Ends every operation at all ranks with kCancelled.
  void Abort();

  // Returns the number of messages that `rank` has sent: the upper bound of a useful end_at.
  uint64_t messages(int rank);

 private:
  friend class LoopbackTransport;

  enum class EventKind : uint8_t { kMessage, kCredit, kEnd };
  struct Event {
    EventKind kind = EventKind::kMessage;
    int from = 0;
    int to = 0;
    uint64_t sequence = 0;  // the credit, for kCredit
    Tag tag;
    std::vector<std::byte> bytes;
  };
  struct Rank {
    std::vector<Channel> channels;  // by peer
    std::vector<uint64_t> waited;   // receives that Wait has returned, by peer
    CondVar changed;
    bool waiting = false;
    bool left = false;   // its transport is destroyed, or it has ended
    bool ended = false;  // the victim
    std::optional<Error> failure;
    uint64_t messages = 0;
  };

  Status Push(int from, Event event) RM_REQUIRES(mutex_);
  // Sends the queued messages that the windows permit, and the credit that is due.
  Status Pump(int rank) RM_REQUIRES(mutex_);
  void DeliverEvent(Event event) RM_REQUIRES(mutex_);
  void AdvanceIfAllWait() RM_REQUIRES(mutex_);
  static void Wake(Rank& rank);
  // Waits until `ready(rank)`; lets virtual time pass when all ranks wait. `lock` holds mutex_.
  template <class Ready>
  Status WaitUntil(MutexLock& lock, int rank, const Ready& ready) RM_REQUIRES(mutex_);

  const NetworkOptions options_;
  Mutex mutex_;
  std::vector<Rank> ranks_ RM_GUARDED_BY(mutex_);
  // By (arrival, sender, its message number): an order that does not depend on thread scheduling.
  std::map<std::tuple<uint64_t, int, uint64_t>, Event> events_ RM_GUARDED_BY(mutex_);
  uint64_t now_ RM_GUARDED_BY(mutex_) = 0;
  bool aborted_ RM_GUARDED_BY(mutex_) = false;
};

}  // namespace ringmaster::fabric::loopback
