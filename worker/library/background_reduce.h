// SPDX-License-Identifier: Apache-2.0

// BackgroundReduce runs all-reduces one after another on its own thread, while the program computes.
//
// Add and Drain: one thread at a time. The thread of this class uses the communicator between the first Add
// and the end of Drain; no other thread may.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <thread>
#include <variant>

#include "base/mutex.h"
#include "base/result.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::library {

class BackgroundReduce {
 public:
  using Values = std::variant<std::span<int32_t>, std::span<float>>;

  BackgroundReduce();
  // Drops what has not started, and waits for what has.
  ~BackgroundReduce();
  BackgroundReduce(const BackgroundReduce&) = delete;
  BackgroundReduce& operator=(const BackgroundReduce&) = delete;

  // Queues the sum of `values` over all ranks, in place. REQUIRES: every rank makes the same calls; `comm`
  // and `values` live until the next Drain.
  void Add(fabric::Communicator* comm, Values values);

  // Waits until all sums are there, and returns the first error since the last Drain. After an error the rest
  // is dropped.
  Status Drain();

 private:
  struct Job {
    fabric::Communicator* comm;
    Values values;
  };

  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ RM_GUARDED_BY(mutex_);
  bool busy_ RM_GUARDED_BY(mutex_) = false;
  bool stop_ RM_GUARDED_BY(mutex_) = false;
  Status outcome_ RM_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses all other members
};

}  // namespace ringmaster::library
