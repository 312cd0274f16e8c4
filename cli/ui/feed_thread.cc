// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/feed_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringmaster::cli {

void FeedThread::Start(Options options) {
  options_ = std::move(options);
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  CHECK(wake_.valid());
  thread_ = std::thread([this] { Run(); });
}

void FeedThread::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void FeedThread::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  ::eventfd_write(wake_.get(), 1);
}

bool FeedThread::RunTasks() {
  std::vector<std::function<void()>> tasks;
  bool stopping = false;
  {
    MutexLock lock(mutex_);
    tasks.swap(tasks_);
    stopping = stopping_;
  }
  for (const auto& task : tasks) task();
  return !stopping;
}

void FeedThread::Run() {
  options_.tick();
  Time ticked = Now();
  bool changed = false;  // since the last tick
  while (RunTasks()) {
    const Time due = ticked + (changed ? options_.pause : options_.period);
    const int64_t wait_ms = std::max<int64_t>(0, ToMs(due - Now()));
    pollfd waits[] = {{wake_.get(), POLLIN, 0}, {changed ? -1 : options_.watch_fd, POLLIN, 0}};
    ::poll(waits, 2, static_cast<int>(wait_ms) + 1);
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
    changed = changed || (waits[1].revents & POLLIN) != 0;
    if (Now() < ticked + (changed ? options_.pause : options_.period)) continue;
    options_.tick();
    ticked = Now();
    changed = false;
  }
  options_.tick();
}

}  // namespace ringmaster::cli
