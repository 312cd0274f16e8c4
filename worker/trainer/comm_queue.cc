// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/comm_queue.h"

#include <utility>

namespace ringmaster::trainer {

CommQueue::CommQueue(device::Device* device) : device_(device), thread_([this] { Run(); }) {}

CommQueue::~CommQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status CommQueue::Add(const Communicators& comms, const HostDeviceBuffer<int32_t>& data) {
  return Push(comms, data);
}
Status CommQueue::Add(const Communicators& comms, const HostDeviceBuffer<float>& data) {
  return Push(comms, data);
}

template <class T>
Status CommQueue::Push(const Communicators& comms, const HostDeviceBuffer<T>& data) {
  RM_ASSIGN(const device::Event ready,
            comms.device != nullptr
                ? device_->RecordEvent()
                : device_->CopyToHost(std::as_bytes(data.device), std::as_writable_bytes(data.host)));
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({comms, data, ready});
  }
  changed_.notify_all();
  return Ok();
}

Status CommQueue::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
  const Status reduced = std::exchange(outcome_, Ok());
  const Status joined = device_->JoinStreams();
  RM_TRY(reduced);
  return joined;
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
    Status status = std::visit([&](const auto& data) { return Reduce(job, data); }, job.data);
    lock.lock();
    busy_ = false;
    if (!status.ok()) outcome_ = std::move(status);
    changed_.notify_all();
  }
}

template <class T>
Status CommQueue::Reduce(const Job& job, const HostDeviceBuffer<T>& data) {
  if (job.comms.device != nullptr) {
    RM_TRY(device_->CollectivesWaitEvent(job.ready));
    return job.comms.device->StartAllReduce(data.device, fabric::ReduceOp::kSum);
  }
  RM_TRY(device_->SyncEvent(job.ready));
  RM_TRY(job.comms.host->AllReduce(data.host, fabric::ReduceOp::kSum));
  return device_->CopyToDevice(std::as_bytes(data.host), std::as_writable_bytes(data.device));
}

}  // namespace ringmaster::trainer
