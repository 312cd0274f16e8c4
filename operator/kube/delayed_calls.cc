// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/delayed_calls.h"

#include <utility>

namespace ringmaster::kube {

void DelayedCalls::After(Duration delay, std::function<void(bool stopped)> call) {
  {
    MutexLock lock(mutex_);
    if (!stopped_) {
      calls_.emplace(Now() + delay, std::move(call));
      if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
      changed_.NotifyAll();
      return;
    }
  }
  call(true);
}

void DelayedCalls::Stop() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    thread.swap(thread_);
    changed_.NotifyAll();
  }
  if (thread.joinable()) thread.join();
}

void DelayedCalls::Run() {
  MutexLock lock(mutex_);
  while (true) {
    if (calls_.empty()) {
      if (stopped_) return;
      changed_.Wait(lock);
      continue;
    }
    const auto next = calls_.begin();
    if (!stopped_ && next->first > Now()) {
      changed_.WaitUntil(lock, next->first);
      continue;
    }
    const auto call = std::move(next->second);
    const bool stopped = stopped_;
    calls_.erase(next);
    lock.Unlock();
    call(stopped);
    lock.Lock();
  }
}

}  // namespace ringmaster::kube
