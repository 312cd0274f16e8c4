// SPDX-License-Identifier: Apache-2.0

// CommQueue runs all-reduces in the background: backward adds gradient buckets as they become final, and they
// are reduced while backward computes the next layers.
//
// It also transfers parts of the state to joining members, in the order of the calls: every rank of the
// communicator makes the same calls for buckets, and the two ranks of a transfer make matching ones.
//
// A bucket is reduced where a communicator can reach it. With a device communicator the device reduces it, in
// stream order. Otherwise it is copied to the host, reduced there, and copied back to the device.
//
// Add and Drain: one caller. A thread of the queue uses the communicator between the first Add and the end of
// Drain. After an error the remaining buckets are dropped.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <thread>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/compute/device/gradient_device.h"
#include "worker/fabric/async_communicator.h"
#include "worker/fabric/communicator.h"
#include "worker/trainer/host_device_buffer.h"

namespace ringmaster::trainer {

// The communicators of a generation.
struct Communicators {
  fabric::Communicator* host = nullptr;
  fabric::AsyncCommunicator* device = nullptr;  // reduces the device's memory; may be null
};

class CommQueue {
 public:
  explicit CommQueue(device::GradientDevice* device);
  ~CommQueue();
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;

  // Queues an all-reduce (sum) of `data`, which is final once the device has done its work so far. REQUIRES:
  // `comms` and `data` outlive the next Drain.
  Status Add(const Communicators& comms, const HostDeviceBuffer<int32_t>& data);
  Status Add(const Communicators& comms, const HostDeviceBuffer<float>& data);

  // Queues a transfer of `data` to or from other ranks: it is copied from the device as it is now, or to it.
  // Data without a copy on the device stays on the host. REQUIRES: as Add.
  Status AddSend(const Communicators& comms, const HostDeviceBuffer<std::byte>& data,
                 std::span<const int32_t> to);
  Status AddReceive(const Communicators& comms, const HostDeviceBuffer<std::byte>& data, int32_t from);
  // Returns how long the transfers since the last call took. REQUIRES: the queue is drained.
  Duration TakeTransferTime();

  // Waits until every bucket is reduced, or passed to the device communicator, whose Finish the owner then
  // calls. Returns the first error since the last Drain. Device work enqueued afterwards sees the sums.
  Status Drain();

 private:
  struct Transfer {
    HostDeviceBuffer<std::byte> data;
    std::vector<int32_t> to;
    int32_t from = -1;  // -1: it sends
  };
  struct Job {
    Communicators comms;
    std::variant<HostDeviceBuffer<int32_t>, HostDeviceBuffer<float>, Transfer> data;
    device::Event ready = 0;
  };

  template <class T>
  Status Push(const Communicators& comms, const HostDeviceBuffer<T>& data);
  void Run();
  void Append(Job job);
  template <class T>
  Status Perform(const Job& job, const HostDeviceBuffer<T>& data);
  Status Perform(const Job& job, const Transfer& transfer);

  device::GradientDevice* const device_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ RM_GUARDED_BY(mutex_);
  bool busy_ RM_GUARDED_BY(mutex_) = false;
  bool stop_ RM_GUARDED_BY(mutex_) = false;
  Status outcome_ RM_GUARDED_BY(mutex_);  // the first error since the last Drain
  Duration transfer_time_ RM_GUARDED_BY(mutex_){};
  std::thread thread_;
};

}  // namespace ringmaster::trainer
