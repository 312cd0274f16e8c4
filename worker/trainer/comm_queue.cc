#include "worker/trainer/comm_queue.h"

#include <utility>

namespace ringmaster::trainer {

CommQueue::CommQueue() : thread_([this] { Run(); }) {}

CommQueue::~CommQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CommQueue::Add(fabric::Communicator* comm, std::span<int32_t> data) { Push({comm, data}); }
void CommQueue::Add(fabric::Communicator* comm, std::span<float> data) { Push({comm, data}); }

void CommQueue::Push(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  changed_.notify_all();
}

Status CommQueue::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
  return std::exchange(outcome_, Ok());
}

void CommQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    if (!outcome_.ok()) {
      changed_.notify_all();
      continue;
    }
    busy_ = true;
    lock.unlock();
    Status status =
        std::visit([&job](auto data) { return job.comm->AllReduce(data, fabric::ReduceOp::kSum); }, job.data);
    lock.lock();
    busy_ = false;
    if (!status.ok()) outcome_ = std::move(status);
    changed_.notify_all();
  }
}

}  // namespace ringmaster::trainer
