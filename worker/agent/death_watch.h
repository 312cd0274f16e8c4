// SPDX-License-Identifier: Apache-2.0

// One thread that waits for a trainer's death in the kernel's robust-mutex hand-over, the earliest sign there
// is (page.h), and turns it into an eventfd that the agent's loop polls.
//
// Make it only after the trainer said `ready`: before that the mutex is free, and the watch would take it.
// The thread allocates nothing and touches nothing but the page and the eventfd.
#pragma once

#include <pthread.h>

#include <memory>

#include "base/fd.h"
#include "base/result.h"
#include "worker/agent/shared_page.h"

namespace ringmaster::agent {

class DeathWatch {
  struct Private {};

 public:
  // `page` must outlive the watch.
  static Result<std::unique_ptr<DeathWatch>> Start(SharedPage& page);

  DeathWatch(Private, SharedPage& page, Fd event) : page_(page), event_(std::move(event)) {}
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;
  // Joins the thread: the trainer must have been reaped, or this blocks until it dies.
  ~DeathWatch();

  // Readable once the trainer is dead (or, against the rules, let go of the mutex).
  int event_fd() const { return event_.get(); }

 private:
  static void* Watch(void* self);

  SharedPage& page_;
  Fd event_;
  pthread_t thread_{};
  bool started_ = false;
};

}  // namespace ringmaster::agent
