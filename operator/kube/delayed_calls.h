// SPDX-License-Identifier: Apache-2.0

// Calls functions after a delay, on a thread that starts with the first of them. For retries, since the
// transport's threads must not wait. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <thread>

#include "base/mutex.h"
#include "base/time.h"

namespace ringmaster::kube {

class DelayedCalls {
 public:
  DelayedCalls() = default;
  ~DelayedCalls() { Stop(); }
  DelayedCalls(const DelayedCalls&) = delete;
  DelayedCalls& operator=(const DelayedCalls&) = delete;

  // Calls `call(false)` after `delay`, or `call(true)` at Stop if that is earlier. After Stop, calls it from
  // within.
  void After(Duration delay, std::function<void(bool stopped)> call);

  // REQUIRES: not called from a delayed call.
  void Stop();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::multimap<Time, std::function<void(bool)>> calls_ RM_GUARDED_BY(mutex_);
  bool stopped_ RM_GUARDED_BY(mutex_) = false;
  std::thread thread_ RM_GUARDED_BY(mutex_);
};

}  // namespace ringmaster::kube
