// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/comm_queue.h"

#include <utility>

namespace ringmaster::trainer {

CommQueue::CommQueue(device::GradientDevice* device) : device_(device), thread_([this] { Run(); }) {}

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
  Append({comms, data, ready});
  return Ok();
}

Status CommQueue::AddSend(const Communicators& comms, const HostDeviceBuffer<std::byte>& data,
                          std::span<const int32_t> to) {
  device::Event ready = 0;
  if (!data.device.empty()) {
    RM_ASSIGN(ready, device_->CopyToHost(data.device, data.host));
  }
  Append({comms, Transfer{data, {to.begin(), to.end()}}, ready});
  return Ok();
}

Status CommQueue::AddReceive(const Communicators& comms, const HostDeviceBuffer<std::byte>& data,
                             int32_t from) {
  device::Event ready = 0;
  if (!data.device.empty()) {
    RM_ASSIGN(ready, device_->RecordEvent());
  }
  Append({comms, Transfer{data, {}, from}, ready});
  return Ok();
}

void CommQueue::Append(Job job) {
  {
    const MutexLock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.NotifyAll();
}

Duration CommQueue::TakeTransferTime() {
  const MutexLock lock(mutex_);
  return std::exchange(transfer_time_, Duration::zero());
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
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    if (!outcome_.ok()) {
      changed_.NotifyAll();
      continue;
    }
    busy_ = true;
    lock.Unlock();
    const Time begin = Now();
    Status status = std::visit([&](const auto& data) { return Perform(job, data); }, job.data);
    lock.Lock();
    busy_ = false;
    if (std::holds_alternative<Transfer>(job.data)) transfer_time_ += Now() - begin;
    if (!status.ok()) outcome_ = std::move(status);
    changed_.NotifyAll();
  }
}

template <class T>
Status CommQueue::Perform(const Job& job, const HostDeviceBuffer<T>& data) {
  if (job.comms.device != nullptr) {
    RM_TRY(device_->CollectivesWaitEvent(job.ready));
    return job.comms.device->StartAllReduce(data.device, fabric::ReduceOp::kSum);
  }
  RM_TRY(device_->SyncEvent(job.ready));
  RM_TRY(job.comms.host->AllReduce(data.host, fabric::ReduceOp::kSum));
  return device_->CopyToDevice(std::as_bytes(data.host), std::as_writable_bytes(data.device));
}

// The event of a transfer also binds this thread to the device.
Status CommQueue::Perform(const Job& job, const Transfer& transfer) {
  const HostDeviceBuffer<std::byte>& data = transfer.data;
  if (!data.device.empty()) RM_TRY(device_->SyncEvent(job.ready));
  if (transfer.from < 0) {
    for (const int32_t rank : transfer.to) RM_TRY(job.comms.host->Send(data.host, rank));
    return Ok();
  }
  RM_TRY(job.comms.host->Receive(data.host, transfer.from));
  return data.device.empty() ? Ok() : device_->CopyToDevice(data.host, data.device);
}

}  // namespace ringmaster::trainer
