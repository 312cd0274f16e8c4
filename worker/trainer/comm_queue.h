// SPDX-License-Identifier: Apache-2.0

// All-reduces in the background: the buckets of backward are handed over as they become final, and are on
// their way while backward works on the next layers.
//
// A bucket is reduced where the communicator can reach it: by the device itself, in the order of its work,
// with a communicator of the device's; else on the host, where the device brings it and from where it takes
// it back.
//
// Thread rule: the owner calls; one thread of ours uses the communicator between the first Add and the end of
// Drain. After an error the rest of the queue is dropped.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <variant>

#include "base/result.h"
#include "worker/compute/device/device.h"
#include "worker/fabric/async_communicator.h"
#include "worker/fabric/communicator.h"
#include "worker/trainer/host_device_buffer.h"

namespace ringmaster::trainer {

// The communicators of a generation.
struct Communicators {
  fabric::Communicator* host = nullptr;
  fabric::AsyncCommunicator* device = nullptr;  // on the device's memory; may be missing
};

class CommQueue {
 public:
  explicit CommQueue(device::Device* device);
  ~CommQueue();
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;

  // What the device was given so far leaves `data` final. REQUIRES: comms and data outlive the next Drain.
  Status Add(const Communicators& comms, const HostDeviceBuffer<int32_t>& data);
  Status Add(const Communicators& comms, const HostDeviceBuffer<float>& data);

  // Waits until every bucket is reduced, or given to the device's communicator, whose Finish is then the
  // owner's to call; the first error since the last Drain. What the device is given afterwards sees the sums.
  Status Drain();

 private:
  struct Job {
    Communicators comms;
    std::variant<HostDeviceBuffer<int32_t>, HostDeviceBuffer<float>> data;
    device::Event ready = 0;
  };

  template <class T>
  Status Push(const Communicators& comms, const HostDeviceBuffer<T>& data);
  void Run();
  template <class T>
  Status Reduce(const Job& job, const HostDeviceBuffer<T>& data);

  device::Device* const device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // guarded by mutex_, like all below
  bool busy_ = false;
  bool stop_ = false;
  Status outcome_;
  std::thread thread_;
};

}  // namespace ringmaster::trainer
