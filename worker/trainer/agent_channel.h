// SPDX-License-Identifier: Apache-2.0

// AgentChannel connects a trainer with its agent: it receives orders (Prepare, NewGeneration, Exit) and sends
// reports. A reader thread receives orders, because an abort must reach the fabric and the model while the
// main thread is inside a step. The process exits when the agent closes the channel.
//
// Send: thread-safe. All other members: main thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/time.h"
#include "rendezvous/messages.h"

namespace ringmaster::trainer {

class AgentChannel {
 public:
  // `abort(generation)` runs on the reader thread and must stop all work of that generation and older ones.
  // It must not block.
  AgentChannel(Fd fd, std::function<void(rendezvous::Generation)> abort);
  ~AgentChannel();
  AgentChannel(const AgentChannel&) = delete;
  AgentChannel& operator=(const AgentChannel&) = delete;

  void Send(const rendezvous::Message& message);

  // Waits for an order and returns it; nullopt after `limit`. A newer order replaces an older one; Exit
  // replaces all. But a boundary Prepare lets the generation begin that it is to end.
  std::optional<rendezvous::Message> WaitForOrder(std::optional<Duration> limit = std::nullopt);

  // Starts work of `generation` and clears the cancel flag. Returns false when a newer order forbids it.
  bool Begin(rendezvous::Generation generation);

  // Reports that a restart would not help, and returns the exit code that the answer orders. The wait for it
  // is bounded in case the agent is dying, too.
  int ReportFatal(int exit_code, const std::string& message);

  // True as soon as work of the current generation must stop.
  const std::atomic<bool>& cancelled() const { return cancel_; }

  // A boundary Prepare is pending: the members agree in band on the step after which they pause.
  bool boundary_wanted() const { return boundary_.load(std::memory_order_relaxed); }

 private:
  void ReadLoop();
  void Take(rendezvous::Message message);

  Fd fd_;
  const std::function<void(rendezvous::Generation)> abort_;
  std::atomic<bool> cancel_{false};
  std::atomic<bool> boundary_{false};
  Mutex send_mutex_;  // serializes frames on fd_
  Mutex mutex_;
  CondVar arrived_;
  std::optional<rendezvous::Message> order_ RM_GUARDED_BY(mutex_);
  std::optional<rendezvous::Prepare> boundary_order_ RM_GUARDED_BY(mutex_);  // after order_
  rendezvous::Generation newest_ RM_GUARDED_BY(mutex_) = 0;                  // generation of the newest order
  rendezvous::Generation aborted_ RM_GUARDED_BY(mutex_) = 0;                 // none below may begin
  bool exiting_ RM_GUARDED_BY(mutex_) = false;
  std::atomic<bool> closing_{false};
  std::thread reader_;
};

}  // namespace ringmaster::trainer
