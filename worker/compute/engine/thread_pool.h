// SPDX-License-Identifier: Apache-2.0

// A pool of threads that runs numbered units of work. The caller divides the work into units by its shape
// alone, so that the result does not depend on which thread runs which unit. A pool of one thread starts
// none.
//
// Not thread-safe: one thread, the owner, calls Run, and takes part as worker 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace ringmaster::engine {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(unit, worker) once for every unit in [0, units) and returns when all calls have returned.
  // `worker`, in [0, threads()), identifies the thread, for per-thread scratch. REQUIRES: `work` does not
  // throw.
  template <class Work>
  void Run(int64_t units, const Work& work) {
    if (units <= 1 || workers_.empty()) {
      for (int64_t unit = 0; unit < units; ++unit) work(unit, 0);
      return;
    }
    Start(units, &work, [](const void* context, int64_t unit, int worker) {
      (*static_cast<const Work*>(context))(unit, worker);
    });
  }

 private:
  using Call = void (*)(const void* context, int64_t unit, int worker);

  void Start(int64_t units, const void* context, Call call);
  void Work(int worker);
  void Loop(int worker);

  std::vector<std::thread> workers_;
  // Written by the owner while all workers wait; incrementing round_ publishes them.
  int64_t units_ = 0;
  const void* context_ = nullptr;
  Call call_ = nullptr;
  bool stop_ = false;
  std::atomic<uint32_t> round_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<int> busy_{0};
};

}  // namespace ringmaster::engine
