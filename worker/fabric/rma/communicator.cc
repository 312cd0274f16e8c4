// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/rma/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/fabric/operation.h"

namespace ringmaster::fabric::rma {
namespace {

constexpr size_t kCacheLineBytes = 64;
// Up to this size every member gets all operands and sums them itself: one round instead of two.
constexpr size_t kSmallBytes = 64 << 10;

class RmaCommunicator final : public AsyncCommunicator {
 public:
  RmaCommunicator(std::unique_ptr<Group> group, DeviceWork* work, std::span<std::byte> scratch)
      : group_(std::move(group)), work_(work), scratch_(scratch) {
    CHECK(world() == 1 || ScratchHalf(0).size() >= Others() * kCacheLineBytes,
          "too little scratch: {} bytes for {} members", scratch.size(), world());
  }
  // No work of this communicator is in flight when the memory is reused.
  ~RmaCommunicator() override { (void)work_->Wait(); }

  int rank() const override { return group_->rank(); }
  int world() const override { return group_->world(); }
  uint64_t generation() const override { return group_->generation(); }

  Status AllReduce(std::span<int32_t> data, ReduceOp op) override {
    return Finalize(DoAllReduce(std::as_writable_bytes(data), {Element::kInt32, op}));
  }
  Status AllReduce(std::span<float> data, ReduceOp op) override {
    return Finalize(DoAllReduce(std::as_writable_bytes(data), {Element::kFloat, op}));
  }
  Status ReduceScatter(std::span<int32_t> data, ReduceOp op) override {
    return Finalize(DoReduceScatter(std::as_writable_bytes(data), {Element::kInt32, op}));
  }
  Status ReduceScatter(std::span<float> data, ReduceOp op) override {
    return Finalize(DoReduceScatter(std::as_writable_bytes(data), {Element::kFloat, op}));
  }
  Status AllGather(std::span<std::byte> data) override { return Finalize(DoAllGather(data)); }
  Status Broadcast(std::span<std::byte> data, int root) override { return Finalize(DoBroadcast(data, root)); }
  // By contract the other ranks' data is garbage, so it may be the sum.
  Status Reduce(std::span<int32_t> data, ReduceOp op, int) override { return AllReduce(data, op); }
  Status Reduce(std::span<float> data, ReduceOp op, int) override { return AllReduce(data, op); }
  Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out) override {
    return Finalize(DoAllToAll(in, out));
  }
  Status Barrier() override { return group_->Expose({}, Next(MakeCall(OperationKind::kBarrier))); }
  Status Send(std::span<const std::byte> data, int peer) override {
    RM_TRY(work_->Wait());
    return group_->Send(peer, data);
  }
  Status Receive(std::span<std::byte> data, int peer) override {
    RM_TRY(work_->Wait());
    RM_TRY(group_->AwaitSend(peer, data.size()));
    RM_TRY(group_->Get(peer, 0, data));
    RM_TRY(group_->WaitForGets());
    return group_->Acknowledge(peer);
  }

  Status StartAllReduce(std::span<int32_t> data, ReduceOp op) override { return AllReduce(data, op); }
  Status StartAllReduce(std::span<float> data, ReduceOp op) override { return AllReduce(data, op); }
  Status Finish() override { return Ok(); }  // each StartAllReduce completes its operation

 private:
  Operation Next(uint32_t call) { return {operations_++, call, 0}; }
  size_t Others() const { return static_cast<size_t>(world()) - 1; }
  // Returns the index of the peer's operand among those of the peers.
  size_t OperandIndex(int peer) const { return static_cast<size_t>(peer < rank() ? peer : peer - 1); }
  std::span<std::byte> ScratchHalf(size_t turn) const {
    return scratch_.subspan(turn % 2 * (scratch_.size() / 2), scratch_.size() / 2);
  }
  size_t MaxPieceBytes() const {
    return ScratchHalf(0).size() / Others() / kCacheLineBytes * kCacheLineBytes;
  }

  // Waits for the device, also after a failure: it no longer uses the caller's memory then.
  Status Finalize(Status status) {
    const Status waited = work_->Wait();
    RM_TRY(std::move(status));
    return waited;
  }

  Status UnequalShares(const char* what, size_t bytes) {
    return Error{Code::kInternal, fmt::format("{} of {} bytes among {} ranks: the shares are not equal", what,
                                              bytes, world())};
  }

  // Fills `operands` with equal parts of what the peers have exposed, from `offset` on.
  Status GetOperands(size_t offset, std::span<std::byte> operands) {
    const size_t bytes = operands.size() / Others();
    for (int q = 0; q < world(); ++q) {
      if (q == rank()) continue;
      RM_TRY(group_->Get(q, offset, operands.subspan(OperandIndex(q) * bytes, bytes)));
    }
    return group_->WaitForGets();
  }

  // Sums `own`, which is at `offset` of what all have exposed, with the peers' operands, piece by piece: the
  // device sums a piece while the next one is read.
  Status ReduceShare(std::span<std::byte> own, size_t offset, const Combiner& combiner) {
    size_t turn = 0;
    for (size_t at = 0; at < own.size(); at += MaxPieceBytes(), ++turn) {
      const std::span<std::byte> piece = own.subspan(at, std::min(MaxPieceBytes(), own.size() - at));
      const std::span<std::byte> operands = ScratchHalf(turn).first(piece.size() * Others());
      RM_TRY(GetOperands(offset + at, operands));
      RM_TRY(work_->Wait());  // for the previous piece, whose half the next gets reuse
      work_->Combine({piece, operands, rank(), combiner});
    }
    return work_->Wait();
  }

  Status DoAllReduce(std::span<std::byte> data, const Combiner& combiner) {
    const Operation operation = Next(MakeCall(OperationKind::kAllReduce, &combiner));
    RM_TRY(work_->Wait());
    if (world() == 1 || data.empty()) return Ok();
    RM_TRY(group_->Expose(data, operation));
    if (data.size() * Others() <= kSmallBytes && data.size() <= MaxPieceBytes()) {
      const std::span<std::byte> operands = ScratchHalf(0).first(data.size() * Others());
      RM_TRY(GetOperands(0, operands));
      RM_TRY(group_->Expose({}, operation));  // no peer reads our data any more
      work_->Combine({data, operands, rank(), combiner});
      return Ok();
    }
    // The last shares may be shorter, or empty.
    const size_t share =
        (data.size() / static_cast<size_t>(world()) + kCacheLineBytes) / kCacheLineBytes * kCacheLineBytes;
    const auto share_of = [&](int q) {
      const size_t begin = std::min(data.size(), share * static_cast<size_t>(q));
      return std::pair(begin, data.subspan(begin, std::min(share, data.size() - begin)));
    };
    const auto [begin, own] = share_of(rank());
    RM_TRY(ReduceShare(own, begin, combiner));
    RM_TRY(group_->Expose(data, operation));  // the sums are ready, and no peer reads our operands any more
    for (int q = 0; q < world(); ++q) {
      if (q == rank()) continue;
      const auto [offset, theirs] = share_of(q);
      RM_TRY(group_->Get(q, offset, theirs));
    }
    RM_TRY(group_->WaitForGets());
    return group_->Expose({}, operation);
  }

  Status DoReduceScatter(std::span<std::byte> data, const Combiner& combiner) {
    const Operation operation = Next(MakeCall(OperationKind::kReduceScatter, &combiner));
    const size_t share = data.size() / static_cast<size_t>(world());
    if (share * static_cast<size_t>(world()) != data.size() || share % kElementBytes != 0)
      return UnequalShares("reduce-scatter", data.size());
    RM_TRY(work_->Wait());
    if (world() == 1 || data.empty()) return Ok();
    RM_TRY(group_->Expose(data, operation));
    const size_t begin = share * static_cast<size_t>(rank());
    RM_TRY(ReduceShare(data.subspan(begin, share), begin, combiner));
    return group_->Expose({}, operation);
  }

  Status DoAllGather(std::span<std::byte> data) {
    const Operation operation = Next(MakeCall(OperationKind::kAllGather));
    const size_t share = data.size() / static_cast<size_t>(world());
    if (share * static_cast<size_t>(world()) != data.size()) return UnequalShares("all-gather", data.size());
    RM_TRY(work_->Wait());
    if (world() == 1 || data.empty()) return Ok();
    RM_TRY(group_->Expose(data, operation));
    for (int q = 0; q < world(); ++q) {
      const size_t begin = share * static_cast<size_t>(q);
      if (q != rank()) RM_TRY(group_->Get(q, begin, data.subspan(begin, share)));
    }
    RM_TRY(group_->WaitForGets());
    return group_->Expose({}, operation);
  }

  Status DoBroadcast(std::span<std::byte> data, int root) {
    const Operation operation = Next(MakeCall(OperationKind::kBroadcast, nullptr, root));
    RM_TRY(work_->Wait());
    if (world() == 1 || data.empty()) return Ok();
    RM_TRY(group_->Expose(data, operation));
    if (rank() != root) RM_TRY(group_->Get(root, 0, data));
    RM_TRY(group_->WaitForGets());
    return group_->Expose({}, operation);
  }

  Status DoAllToAll(std::span<const std::byte> in, std::span<std::byte> out) {
    const Operation operation = Next(MakeCall(OperationKind::kAllToAll));
    const size_t share = in.size() / static_cast<size_t>(world());
    if (share * static_cast<size_t>(world()) != in.size() || out.size() != in.size())
      return UnequalShares("all-to-all", in.size());
    RM_TRY(work_->Wait());
    if (in.empty()) return Ok();
    const size_t own = share * static_cast<size_t>(rank());
    work_->Copy(out.subspan(own, share), in.subspan(own, share));
    if (world() == 1) return Ok();
    RM_TRY(group_->Expose(in, operation));
    for (int q = 0; q < world(); ++q)
      if (q != rank()) RM_TRY(group_->Get(q, own, out.subspan(share * static_cast<size_t>(q), share)));
    RM_TRY(group_->WaitForGets());
    return group_->Expose({}, operation);
  }

  const std::unique_ptr<Group> group_;
  uint32_t operations_ = 0;
  DeviceWork* const work_;
  const std::span<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<AsyncCommunicator> MakeCommunicator(std::unique_ptr<Group> group, DeviceWork* work,
                                                    std::span<std::byte> scratch) {
  return std::make_unique<RmaCommunicator>(std::move(group), work, scratch);
}

}  // namespace ringmaster::fabric::rma
