// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/thread_pool.h"

namespace ringmaster::engine {

ThreadPool::ThreadPool(int threads) {
  workers_.reserve(static_cast<size_t>(threads > 1 ? threads - 1 : 0));
  for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { Loop(worker); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Start(int64_t units, const void* context, Call call) {
  units_ = units;
  context_ = context;
  call_ = call;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  Work(0);
  // Wait until every worker has finished this round, so that none uses `context` after the return.
  for (int busy = busy_.load(std::memory_order_acquire); busy != 0;
       busy = busy_.load(std::memory_order_acquire))
    busy_.wait(busy, std::memory_order_acquire);
}

void ThreadPool::Work(int worker) {
  for (int64_t unit = next_.fetch_add(1, std::memory_order_relaxed); unit < units_;
       unit = next_.fetch_add(1, std::memory_order_relaxed))
    call_(context_, unit, worker);
}

void ThreadPool::Loop(int worker) {
  uint32_t seen = 0;
  while (true) {
    round_.wait(seen, std::memory_order_acquire);
    // The owner starts a round only after all workers finished the previous one, so no round is skipped.
    seen = round_.load(std::memory_order_acquire);
    if (stop_) return;
    Work(worker);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

}  // namespace ringmaster::engine
