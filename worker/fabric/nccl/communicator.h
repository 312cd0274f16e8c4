// SPDX-License-Identifier: Apache-2.0

// The collectives of one generation on GPU memory. Each call enqueues work on a stream and returns. Meaning
// and errors are those of fabric/communicator.h, except for the order of float sums, which is NCCL's: a
// function of the machines and the library. Integer sums are exact.
//
// Spans are of device memory; sizes are in elements. Not thread-safe. After a failure the communicator is
// unusable: destroy it. No call hangs, and Wait returns only when the GPU no longer uses the caller's memory.
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

  // In place. AllReduceBf16 sums bf16 values, passed as their bits.
  Status AllReduce(std::span<int32_t> data, ReduceOp op, Stream stream);
  Status AllReduce(std::span<float> data, ReduceOp op, Stream stream);
  Status AllReduceBf16(std::span<uint16_t> data, Stream stream);

  // `data` is `world` equal shares. Afterwards share `rank` holds the reduction; the rest is unchanged.
  Status ReduceScatter(std::span<int32_t> data, ReduceOp op, Stream stream);
  Status ReduceScatter(std::span<float> data, ReduceOp op, Stream stream);

  // `data` is `world` equal shares. Rank r contributes share r.
  Status AllGather(std::span<std::byte> data, Stream stream);

  Status Broadcast(std::span<std::byte> data, int root, Stream stream);

  // Sends share r of `in` to rank r and receives share r of `out` from it. Not in place.
  Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out, Stream stream);
  Status Send(std::span<const std::byte> data, int peer, Stream stream);
  Status Receive(std::span<std::byte> data, int peer, Stream stream);

  // Waits until all work of `stream` is done.
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
  bool in_flight_ = false;  // work was enqueued since the last Wait
};

}  // namespace ringmaster::fabric::nccl
