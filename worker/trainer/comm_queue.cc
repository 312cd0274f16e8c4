// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/comm_queue.h"

#include <utility>

namespace ringmaster::trainer {

CommQueue::CommQueue(device::Device* device) : device_(device), thread_([this] { Run(); }) {}

CommQueue::~CommQueue() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
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
    const MutexLock lock(mutex_);
    jobs_.push_back({comms, data, ready});
  }
  changed_.NotifyAll();
  return Ok();
}

Status CommQueue::Drain() {
  MutexLock lock(mutex_);
  while (!jobs_.empty() || busy_) changed_.Wait(lock);
  const Status reduced = std::exchange(outcome_, Ok());
  const Status joined = device_->JoinStreams();
  RM_TRY(reduced);
  return joined;
}

void CommQueue::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stop_ && jobs_.empty()) changed_.Wait(lock);
    if (stop_) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    if (!outcome_.ok()) {
      changed_.NotifyAll();
      continue;
    }
    busy_ = true;
    lock.Unlock();
    Status status = std::visit([&](const auto& data) { return Reduce(job, data); }, job.data);
    lock.Lock();
    busy_ = false;
    if (!status.ok()) outcome_ = std::move(status);
    changed_.NotifyAll();
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
