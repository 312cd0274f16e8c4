// SPDX-License-Identifier: Apache-2.0

// One thread that waits for a trainer's death in the kernel's robust-mutex hand-over, the earliest sign there
// is (slot.h), and turns it into an eventfd that the agent's loop polls.
//
// Make it only after the trainer said `ready`: before that the mutex is free, and the sentinel would take it.
// The thread allocates nothing and touches nothing but the slot and the eventfd.
#pragma once

#include <pthread.h>

#include <memory>

#include "base/fd.h"
#include "base/result.h"
#include "worker/agent/slot.h"

namespace ringmaster::agent {

class Sentinel {
  struct Private {};

 public:
  // `slot` must outlive the sentinel.
  static Result<std::unique_ptr<Sentinel>> Start(Slot& slot);

  Sentinel(Private, Slot& slot, Fd event) : slot_(slot), event_(std::move(event)) {}
  Sentinel(const Sentinel&) = delete;
  Sentinel& operator=(const Sentinel&) = delete;
  // Joins the thread: the trainer must have been reaped, or this blocks until it dies.
  ~Sentinel();

  // Readable once the trainer is dead (or, against the rules, let go of the mutex).
  int event_fd() const { return event_.get(); }

 private:
  static void* Watch(void* self);

  Slot& slot_;
  Fd event_;
  pthread_t thread_{};
  bool started_ = false;
};

}  // namespace ringmaster::agent
