// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/communicator.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

namespace ringmaster::fabric::nccl {
namespace {

Operation OperationOf(ReduceOp op) { return op == ReduceOp::kSum ? kSum : kMax; }

Error UnevenShares(const char* what, size_t size, int world) {
  return {Code::kInternal,
          fmt::format("{} of {} elements among {} ranks: the shares are not equal", what, size, world)};
}

}  // namespace

DeviceCommunicator::DeviceCommunicator(const Api* api, std::shared_ptr<ManagedCommunicator> managed,
                                       RecordEvent record_event, int rank, int world, uint64_t generation)
    : api_(*api),
      managed_(std::move(managed)),
      record_event_(std::move(record_event)),
      rank_(rank),
      world_(world),
      generation_(generation) {}

DeviceCommunicator::~DeviceCommunicator() {
  if (managed_ != nullptr) managed_->Release(!in_flight_);
}

Status DeviceCommunicator::AllReduce(std::span<int32_t> data, ReduceOp op, Stream stream) {
  return AllReduceOf(data.data(), data.size(), kInt32, OperationOf(op), stream);
}

Status DeviceCommunicator::AllReduce(std::span<float> data, ReduceOp op, Stream stream) {
  return AllReduceOf(data.data(), data.size(), kFloat32, OperationOf(op), stream);
}

Status DeviceCommunicator::AllReduceBf16(std::span<uint16_t> data, Stream stream) {
  return AllReduceOf(data.data(), data.size(), kBfloat16, kSum, stream);
}

Status DeviceCommunicator::ReduceScatter(std::span<int32_t> data, ReduceOp op, Stream stream) {
  return ReduceScatterOf(std::as_writable_bytes(data).data(), data.size(), sizeof(int32_t), kInt32,
                         OperationOf(op), stream);
}

Status DeviceCommunicator::ReduceScatter(std::span<float> data, ReduceOp op, Stream stream) {
  return ReduceScatterOf(std::as_writable_bytes(data).data(), data.size(), sizeof(float), kFloat32,
                         OperationOf(op), stream);
}

Status DeviceCommunicator::AllGather(std::span<std::byte> data, Stream stream) {
  const size_t share = data.size() / static_cast<size_t>(world_);
  if (share * static_cast<size_t>(world_) != data.size())
    return UnevenShares("all-gather", data.size(), world_);
  if (data.empty()) return Ok();
  const std::byte* const own = data.data() + share * static_cast<size_t>(rank_);
  return Enqueue(
      [&](Handle handle) { return api_.all_gather(own, data.data(), share, kByte, handle, stream); });
}

Status DeviceCommunicator::Broadcast(std::span<std::byte> data, int root, Stream stream) {
  if (data.empty()) return Ok();
  return Enqueue([&](Handle handle) {
    return api_.broadcast(data.data(), data.data(), data.size(), kByte, root, handle, stream);
  });
}

Status DeviceCommunicator::AllToAll(std::span<const std::byte> in, std::span<std::byte> out, Stream stream) {
  const size_t share = in.size() / static_cast<size_t>(world_);
  if (share * static_cast<size_t>(world_) != in.size() || out.size() != in.size())
    return UnevenShares("all-to-all", in.size(), world_);
  if (in.empty()) return Ok();
  if (managed_ == nullptr) return Error{Code::kInternal, "all-to-all in a world of one: copy on the stream"};
  return Enqueue([&](Handle handle) {
    int result = api_.group_start();
    for (int peer = 0; peer < world_ && Succeeded(result); ++peer) {
      const size_t at = share * static_cast<size_t>(peer);
      result = api_.send(in.data() + at, share, kByte, peer, handle, stream);
      if (Succeeded(result)) result = api_.receive(out.data() + at, share, kByte, peer, handle, stream);
    }
    const int ended = api_.group_end();
    return Succeeded(result) ? ended : result;
  });
}

Status DeviceCommunicator::Send(std::span<const std::byte> data, int peer, Stream stream) {
  if (data.empty()) return Ok();
  return Enqueue(
      [&](Handle handle) { return api_.send(data.data(), data.size(), kByte, peer, handle, stream); });
}

Status DeviceCommunicator::Receive(std::span<std::byte> data, int peer, Stream stream) {
  if (data.empty()) return Ok();
  return Enqueue(
      [&](Handle handle) { return api_.receive(data.data(), data.size(), kByte, peer, handle, stream); });
}

Status DeviceCommunicator::Wait(Stream stream) {
  if (managed_ != nullptr) {
    const Status done = managed_->Wait(stream);
    in_flight_ = false;  // after a failure, too: the watchdog has ended the work
    return done;
  }
  const EventQuery reached = record_event_(stream);
  while (true) {
    const Result<bool> done = reached();
    if (!done.ok()) return done.error();
    if (*done) return Ok();
    std::this_thread::yield();
  }
}

Status DeviceCommunicator::AllReduceOf(void* data, size_t size, DataType type, Operation op, Stream stream) {
  if (size == 0) return Ok();
  return Enqueue([&](Handle handle) { return api_.all_reduce(data, data, size, type, op, handle, stream); });
}

Status DeviceCommunicator::ReduceScatterOf(std::byte* data, size_t size, size_t size_of, DataType type,
                                           Operation op, Stream stream) {
  const size_t share = size / static_cast<size_t>(world_);
  if (share * static_cast<size_t>(world_) != size) return UnevenShares("reduce-scatter", size, world_);
  if (size == 0) return Ok();
  std::byte* const own = data + share * size_of * static_cast<size_t>(rank_);
  return Enqueue(
      [&](Handle handle) { return api_.reduce_scatter(data, own, share, type, op, handle, stream); });
}

Status DeviceCommunicator::Enqueue(const std::function<int(Handle)>& call) {
  if (managed_ == nullptr) return Ok();
  in_flight_ = true;
  return managed_->Enqueue(call);
}

}  // namespace ringmaster::fabric::nccl
