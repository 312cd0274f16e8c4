// SPDX-License-Identifier: Apache-2.0

// DeathWatch detects the death of a trainer: a thread waits for the robust mutex of the shared page, which
// the kernel releases at the earliest point of a process's death (shared_page.h), and signals an eventfd that
// the agent's loop polls.
//
// The thread allocates nothing and accesses only the page and the eventfd.
#pragma once

#include <pthread.h>

#include <memory>

#include "base/fd.h"
#include "base/result.h"
#include "worker/agent/trainer/shared_page.h"

namespace ringmaster::agent {

class DeathWatch {
  struct Private {};

 public:
  // REQUIRES: the trainer has set `ready` (before that the mutex is free, and the thread would lock it), and
  // `page` outlives the watch.
  static Result<std::unique_ptr<DeathWatch>> Start(SharedPage& page);

  DeathWatch(Private, SharedPage& page, Fd event) : page_(page), event_(std::move(event)) {}
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;
  // Joins the thread. REQUIRES: the trainer has been reaped; otherwise this blocks until it dies.
  ~DeathWatch();

  // Readable once the trainer is dead (or has released the mutex, which it must not).
  int event_fd() const { return event_.get(); }

 private:
  static void* Watch(void* self);

  SharedPage& page_;
  Fd event_;
  pthread_t thread_{};
  bool started_ = false;
};

}  // namespace ringmaster::agent
