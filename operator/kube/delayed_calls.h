// SPDX-License-Identifier: Apache-2.0

// Calls functions later, on a thread of its own that starts with the first of them. For retries: none of the
// transport's threads may wait.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/time.h"

namespace ringmaster::kube {

class DelayedCalls {
 public:
  DelayedCalls() = default;
  ~DelayedCalls() { Stop(); }
  DelayedCalls(const DelayedCalls&) = delete;
  DelayedCalls& operator=(const DelayedCalls&) = delete;

  // `call` gets false in due time, and true at once when Stop comes first (or came already; then from
  // within).
  void After(Duration delay, std::function<void(bool stopped)> call);

  // Not from within a call.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Time, std::function<void(bool)>> calls_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace ringmaster::kube
