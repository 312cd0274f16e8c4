// SPDX-License-Identifier: Apache-2.0

// One rank of an emulated communicator: a thread executes the operations enqueued on streams, together with
// the other ranks of an area. As with NCCL, an operation whose peers are gone never ends; Stop ends it.
//
// Not thread-safe. Stop and the destructor return when the thread has ended.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "tests/cuda/nccl/area.h"
#include "tests/cuda/runtime/stream_head.h"
#include "worker/fabric/nccl/api.h"

namespace ringmaster::nccl_emulation {

enum class Kind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast };

struct Operation {
  Kind kind = Kind::kAllReduce;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  size_t bytes = 0;  // of the data; of a share for kReduceScatter and kAllGather
  int type = 0;      // fabric::nccl::DataType
  int argument = 0;  // fabric::nccl::Operation, or the root
  cuda::emulation::StreamHead* stream = nullptr;
};

class Rank {
 public:
  Rank(std::shared_ptr<Area> area, int rank, int world);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  const std::shared_ptr<Area>& area() const { return area_; }

  bool Idle();
  bool AllAreThere() const { return area_->head().joined == world_; }
  void Give(const Operation& operation);
  // Ends all operations; they count as done, with garbage in their memory.
  void Stop();

 private:
  // Gets the first `size` bytes of each rank's slot.
  using Use = std::function<void(int rank, std::span<const std::byte> piece)>;
  void Run();
  bool Work(const Operation& operation);
  bool Reduce(std::span<const std::byte> in, std::byte* out, int type, int operation);
  bool Exchange(std::span<const std::byte> own, size_t size, const Use& use);
  bool AwaitAll(std::atomic<uint64_t> Area::Rank::*counter, uint64_t count);

  const std::shared_ptr<Area> area_;
  const int rank_;
  const int world_;
  uint64_t segments_ = 0;  // of the thread only
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace ringmaster::nccl_emulation
