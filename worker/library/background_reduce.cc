// SPDX-License-Identifier: Apache-2.0

#include "worker/library/background_reduce.h"

#include <utility>

namespace ringmaster::library {

BackgroundReduce::BackgroundReduce() : thread_([this] { Run(); }) {}

BackgroundReduce::~BackgroundReduce() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void BackgroundReduce::Add(fabric::Communicator* comm, Values values) {
  {
    const MutexLock lock(mutex_);
    jobs_.push_back({comm, values});
  }
  changed_.NotifyAll();
}

Status BackgroundReduce::Drain() {
  MutexLock lock(mutex_);
  while (!jobs_.empty() || busy_) changed_.Wait(lock);
  return std::exchange(outcome_, Ok());
}

void BackgroundReduce::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stop_ && jobs_.empty()) changed_.Wait(lock);
    if (stop_) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    if (outcome_.ok()) {
      busy_ = true;
      lock.Unlock();
      Status status =
          std::visit([&](const auto& values) { return job.comm->AllReduce(values, fabric::ReduceOp::kSum); },
                     job.values);
      lock.Lock();
      busy_ = false;
      if (!status.ok()) outcome_ = std::move(status);
    }
    changed_.NotifyAll();
  }
}

}  // namespace ringmaster::library
