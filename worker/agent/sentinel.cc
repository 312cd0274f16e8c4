// SPDX-License-Identifier: Apache-2.0

#include "worker/agent/sentinel.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/file.h"

namespace ringmaster::agent {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;

// A pthread_t started with a small stack and all signals blocked: signals are the main thread's.
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

Result<std::unique_ptr<Sentinel>> Sentinel::Start(Slot& slot) {
  CHECK(slot.ready.load(std::memory_order_acquire) == 1, "nobody holds the mutex yet");
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return ErrnoError("eventfd", errno);
  auto sentinel = std::make_unique<Sentinel>(Private{}, slot, std::move(event));
  if (const int why = StartThread(&sentinel->thread_, &Watch, sentinel.get()); why != 0) {
    return ErrnoError("start the sentinel", why);
  }
  sentinel->started_ = true;
  return sentinel;
}

void* Sentinel::Watch(void* self) {
  auto* sentinel = static_cast<Sentinel*>(self);
  const int got = ::pthread_mutex_lock(&sentinel->slot_.alive);
  const uint64_t one = 1;
  // Tell first; everything else can wait.
  [[maybe_unused]] const ssize_t told = ::write(sentinel->event_.get(), &one, sizeof one);
  // Unlocking without making it consistent spoils the mutex for good: nobody can hold this page again.
  if (got == 0 || got == EOWNERDEAD) ::pthread_mutex_unlock(&sentinel->slot_.alive);
  return nullptr;
}

Sentinel::~Sentinel() {
  if (started_) ::pthread_join(thread_, nullptr);
}

}  // namespace ringmaster::agent
