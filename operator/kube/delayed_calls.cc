// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/delayed_calls.h"

#include <utility>

namespace ringmaster::kube {

void DelayedCalls::After(Duration delay, std::function<void(bool stopped)> call) {
  {
    std::lock_guard lock(mutex_);
    if (!stopped_) {
      calls_.emplace(Now() + delay, std::move(call));
      if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
      changed_.notify_all();
      return;
    }
  }
  call(true);
}

void DelayedCalls::Stop() {
  std::thread thread;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    thread.swap(thread_);
    changed_.notify_all();
  }
  if (thread.joinable()) thread.join();
}

void DelayedCalls::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (calls_.empty()) {
      if (stopped_) return;
      changed_.wait(lock);
      continue;
    }
    const auto next = calls_.begin();
    if (!stopped_ && next->first > Now()) {
      changed_.wait_until(lock, next->first);
      continue;
    }
    const auto call = std::move(next->second);
    const bool stopped = stopped_;
    calls_.erase(next);
    lock.unlock();
    call(stopped);
    lock.lock();
  }
}

}  // namespace ringmaster::kube
