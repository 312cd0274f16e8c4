// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/blocking.h"

#include <utility>

namespace ringmaster::fabric::nccl {
namespace {

class BlockingCommunicator final : public AsyncCommunicator {
 public:
  BlockingCommunicator(std::unique_ptr<DeviceCommunicator> device, Communicator* host, Stream stream,
                       CopyOnDevice copy)
      : device_(std::move(device)), host_(host), stream_(stream), copy_(std::move(copy)) {}

  int rank() const override { return device_->rank(); }
  int world() const override { return device_->world(); }
  uint64_t generation() const override { return device_->generation(); }

  Status AllReduce(std::span<int32_t> data, ReduceOp op) override {
    return Finish(device_->AllReduce(data, op, stream_));
  }
  Status AllReduce(std::span<float> data, ReduceOp op) override {
    return Finish(device_->AllReduce(data, op, stream_));
  }
  Status ReduceScatter(std::span<int32_t> data, ReduceOp op) override {
    return Finish(device_->ReduceScatter(data, op, stream_));
  }
  Status ReduceScatter(std::span<float> data, ReduceOp op) override {
    return Finish(device_->ReduceScatter(data, op, stream_));
  }
  Status AllGather(std::span<std::byte> data) override { return Finish(device_->AllGather(data, stream_)); }
  Status Broadcast(std::span<std::byte> data, int root) override {
    return Finish(device_->Broadcast(data, root, stream_));
  }
  // By contract the other ranks' data is garbage, so it may be the sum.
  Status Reduce(std::span<int32_t> data, ReduceOp op, int) override { return AllReduce(data, op); }
  Status Reduce(std::span<float> data, ReduceOp op, int) override { return AllReduce(data, op); }

  Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out) override {
    if (world() > 1) return Finish(device_->AllToAll(in, out, stream_));
    copy_(stream_, out, in);
    return device_->Wait(stream_);
  }
  Status Barrier() override { return host_->Barrier(); }
  Status Send(std::span<const std::byte> data, int peer) override {
    return Finish(device_->Send(data, peer, stream_));
  }
  Status Receive(std::span<std::byte> data, int peer) override {
    return Finish(device_->Receive(data, peer, stream_));
  }

  Status StartAllReduce(std::span<int32_t> data, ReduceOp op) override {
    return device_->AllReduce(data, op, stream_);
  }
  Status StartAllReduce(std::span<float> data, ReduceOp op) override {
    return device_->AllReduce(data, op, stream_);
  }
  Status Finish() override { return device_->Wait(stream_); }

 private:
  Status Finish(Status enqueued) {
    RM_TRY(std::move(enqueued));
    return device_->Wait(stream_);
  }

  const std::unique_ptr<DeviceCommunicator> device_;
  Communicator* const host_;
  const Stream stream_;
  const CopyOnDevice copy_;
};

}  // namespace

std::unique_ptr<AsyncCommunicator> MakeBlocking(std::unique_ptr<DeviceCommunicator> device,
                                                Communicator* host, Stream stream, CopyOnDevice copy) {
  return std::make_unique<BlockingCommunicator>(std::move(device), host, stream, std::move(copy));
}

}  // namespace ringmaster::fabric::nccl
