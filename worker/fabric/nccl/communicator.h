// SPDX-License-Identifier: Apache-2.0

// Collectives of one generation on memory of GPUs. The calls give work to a stream and return; what they mean
// and what holds for failures is as in fabric/communicator.h, but for the order in which floats are summed:
// that is NCCL's, a function of the machines and the library. Integers are exact.
//
// Spans are of device memory, never looked into here; sizes are in elements. One thread at a time. After a
// failure the communicator is unusable: destroy it. No call hangs, and Wait returns only when the GPU has
// nothing more to do with the caller's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "worker/fabric/communicator.h"
#include "worker/fabric/nccl/managed_communicator.h"

namespace ringmaster::fabric::nccl {

class DeviceCommunicator {
 public:
  // `managed` is nullptr in a world of one.
  DeviceCommunicator(const Api* api, std::shared_ptr<ManagedCommunicator> managed, RecordEvent record_event,
                     int rank, int world, uint64_t generation);
  ~DeviceCommunicator();
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  uint64_t generation() const { return generation_; }

  // In place. bf16 as its bits; only sums of it are asked for.
  Status AllReduce(std::span<int32_t> data, ReduceOp op, Stream stream);
  Status AllReduce(std::span<float> data, ReduceOp op, Stream stream);
  Status AllReduceBf16(std::span<uint16_t> data, Stream stream);

  // `data` is world equal shares; afterwards share `rank` holds the sum (the rest is as it was).
  Status ReduceScatter(std::span<int32_t> data, ReduceOp op, Stream stream);
  Status ReduceScatter(std::span<float> data, ReduceOp op, Stream stream);

  // `data` is world equal shares; share r comes from rank r.
  Status AllGather(std::span<std::byte> data, Stream stream);

  Status Broadcast(std::span<std::byte> data, int root, Stream stream);

  // Not in place; share r goes to rank r and comes from it.
  Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out, Stream stream);
  Status Send(std::span<const std::byte> data, int peer, Stream stream);
  Status Receive(std::span<std::byte> data, int peer, Stream stream);

  // Until all that `stream` was given is done.
  Status Wait(Stream stream);

 private:
  Status AllReduceOf(void* data, size_t size, DataType type, Operation op, Stream stream);
  Status ReduceScatterOf(std::byte* data, size_t size, size_t size_of, DataType type, Operation op,
                         Stream stream);
  Status Enqueue(const std::function<int(Handle)>& call);

  const Api& api_;
  const std::shared_ptr<ManagedCommunicator> managed_;
  const RecordEvent record_event_;
  const int rank_;
  const int world_;
  const uint64_t generation_;
  bool under_way_ = false;  // something was given to the GPU since the last Wait
};

}  // namespace ringmaster::fabric::nccl
