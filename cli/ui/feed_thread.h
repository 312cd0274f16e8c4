// SPDX-License-Identifier: Apache-2.0

// The thread of a feed: runs tasks that other threads post, and a tick. Thread-safe.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/time.h"

namespace ringmaster::cli {

class FeedThread {
 public:
  struct Options {
    std::function<void()> tick;  // runs on the thread
    int watch_fd = -1;           // readable: tick soon; the tick reads it. -1: none
    Duration pause{};            // between two ticks, at least
    Duration period{};           // between two ticks, at most
  };
  FeedThread() = default;
  ~FeedThread() { Stop(); }
  FeedThread(const FeedThread&) = delete;
  FeedThread& operator=(const FeedThread&) = delete;

  void Start(Options options);
  // Runs a last tick and ends. Tasks that are posted later do not run.
  void Stop();
  void Post(std::function<void()> task);

 private:
  void Run();
  bool RunTasks();  // false: stop

  Options options_;
  Fd wake_;
  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ RM_GUARDED_BY(mutex_);
  bool stopping_ RM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ringmaster::cli
