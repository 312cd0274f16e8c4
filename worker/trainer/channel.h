// SPDX-License-Identifier: Apache-2.0

// The trainer's line to its agent: orders come in, reports go out. A reader thread takes orders as they
// arrive, because an abort must reach the fabric and the model while the main thread is deep in a step.
//
// Thread rule: Send from any thread; everything else from the main thread. The end of the agent ends the
// process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/fd.h"
#include "base/time.h"
#include "rendezvous/messages.h"

namespace ringmaster::trainer {

class Channel {
 public:
  // `abort(generation)` is called on the reader thread: everything of that generation or older must stop. It
  // must not block.
  Channel(Fd fd, std::function<void(rendezvous::Generation)> abort);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void Send(const rendezvous::Message& message);

  // What to do next. A newer order replaces those before it, so there is at most one; Exit beats all. Blocks.
  // nullopt after `limit` without an order.
  std::optional<rendezvous::Message> WaitForOrder(std::optional<Duration> limit = std::nullopt);

  // Takes up work of `generation`: false when a newer order is already here. Clears the cancel flag.
  bool Begin(rendezvous::Generation generation);

  // True from the moment work of the current generation must stop.
  const std::atomic<bool>& cancelled() const { return cancel_; }

  // A boundary order is waiting: the members must agree in band where to stand still.
  bool boundary_wanted() const { return boundary_.load(std::memory_order_relaxed); }

 private:
  void ReadLoop();
  void Take(rendezvous::Message message);

  Fd fd_;
  const std::function<void(rendezvous::Generation)> abort_;
  std::atomic<bool> cancel_{false};
  std::atomic<bool> boundary_{false};
  std::mutex send_mutex_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::optional<rendezvous::Message> order_;  // guarded by mutex_
  rendezvous::Generation newest_ = 0;         // generation of the newest order; guarded by mutex_
  bool exiting_ = false;                      // guarded by mutex_
  std::atomic<bool> closing_{false};
  std::thread reader_;
};

}  // namespace ringmaster::trainer
