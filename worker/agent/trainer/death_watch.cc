// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/trainer/death_watch.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/file.h"

namespace ringmaster::agent {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;

// Starts a thread with a small stack and all signals blocked: the main thread handles signals.
int StartThread(pthread_t* thread, void* (*body)(void*), void* argument) {
  pthread_attr_t attributes;
  if (const int why = ::pthread_attr_init(&attributes); why != 0) return why;
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const int why = ::pthread_create(thread, &attributes, body, argument);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  return why;
}

}  // namespace

Result<std::unique_ptr<DeathWatch>> DeathWatch::Start(SharedPage& page) {
  CHECK(page.ready.load(std::memory_order_acquire) == 1, "the trainer does not hold the mutex yet");
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return ErrnoError("eventfd", errno);
  auto watch = std::make_unique<DeathWatch>(Private{}, page, std::move(event));
  if (const int why = StartThread(&watch->thread_, &Watch, watch.get()); why != 0) {
    return ErrnoError("start the death watch", why);
  }
  watch->started_ = true;
  return watch;
}

void* DeathWatch::Watch(void* self) {
  auto* watch = static_cast<DeathWatch*>(self);
  const int got = ::pthread_mutex_lock(&watch->page_.alive);
  const uint64_t one = 1;
  // Notify first; everything else can wait.
  [[maybe_unused]] const ssize_t put = ::write(watch->event_.get(), &one, sizeof one);
  // Unlocking without pthread_mutex_consistent makes the mutex unusable: no process can lock this page again.
  if (got == 0 || got == EOWNERDEAD) ::pthread_mutex_unlock(&watch->page_.alive);
  return nullptr;
}

DeathWatch::~DeathWatch() {
  if (started_) ::pthread_join(thread_, nullptr);
}

}  // namespace ringmaster::agent
