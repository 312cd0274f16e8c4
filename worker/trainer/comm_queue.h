// All-reduces in the background: the buckets of backward are handed over as they become final, and are on
// their way while backward works on the next layers.
//
// Thread rule: the owner calls; one thread of ours uses the communicator between the first Add and the end of
// Drain. After an error the rest of the queue is dropped.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <variant>

#include "base/result.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::trainer {

class CommQueue {
 public:
  CommQueue();
  ~CommQueue();
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;

  // REQUIRES: `comm` and `data` outlive the next Drain.
  void Add(fabric::Communicator* comm, std::span<int32_t> data);
  void Add(fabric::Communicator* comm, std::span<float> data);

  // Waits until everything is done; the first error since the last Drain.
  Status Drain();

 private:
  struct Job {
    fabric::Communicator* comm;
    std::variant<std::span<int32_t>, std::span<float>> data;
  };

  void Run();
  void Push(Job job);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // guarded by mutex_, like all below
  bool busy_ = false;
  bool stop_ = false;
  Status outcome_;
  std::thread thread_;
};

}  // namespace ringmaster::trainer
