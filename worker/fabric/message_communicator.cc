// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/message_communicator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "worker/fabric/algorithms.h"
#include "worker/fabric/arguments.h"
#include "worker/fabric/copy.h"

namespace ringmaster::fabric {
namespace {

// Up to this size the latency of a message outweighs sending all data log2(world) times.
constexpr size_t kDoublingBytes = 128 << 10;
// Up to this world all pairs exchange messages at once. For larger data a ring has less in flight: the data
// that a rank forwards is still in its cache.
constexpr int kDirectWorld = 8;
constexpr size_t kDirectBytes = 2 << 20;
constexpr size_t kTreeBytes = 32 << 10;

class MessageCommunicator final : public Communicator {
 public:
  explicit MessageCommunicator(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  int rank() const override { return transport_->rank(); }
  int world() const override { return transport_->world(); }
  uint64_t generation() const override { return transport_->generation(); }

  Status AllReduce(std::span<int32_t> data, ReduceOp op) override {
    return AllReduceBytes(std::as_writable_bytes(data), {Element::kInt32, op});
  }
  Status AllReduce(std::span<float> data, ReduceOp op) override {
    return AllReduceBytes(std::as_writable_bytes(data), {Element::kFloat, op});
  }
  Status ReduceScatter(std::span<int32_t> data, ReduceOp op) override {
    return ReduceScatterBytes(std::as_writable_bytes(data), {Element::kInt32, op});
  }
  Status ReduceScatter(std::span<float> data, ReduceOp op) override {
    return ReduceScatterBytes(std::as_writable_bytes(data), {Element::kFloat, op});
  }

  Status AllGather(std::span<std::byte> data) override {
    RM_TRY(CheckShares(*this, data.size()));
    return Run(MakeCall(OperationKind::kAllGather), data.size(),
               [&](const Operation& operation) { return RingAllGather(*transport_, operation, data); });
  }

  Status Broadcast(std::span<std::byte> data, int root) override {
    RM_TRY(CheckRank(*this, root));
    return Run(MakeCall(OperationKind::kBroadcast, nullptr, root), data.size(),
               [&](const Operation& operation) {
                 return data.size() <= Small(kTreeBytes) ? TreeBroadcast(*transport_, operation, data, root)
                                                         : ChainBroadcast(*transport_, operation, data, root);
               });
  }

  Status Reduce(std::span<int32_t> data, ReduceOp op, int root) override {
    return ReduceBytes(std::as_writable_bytes(data), {Element::kInt32, op}, root);
  }
  Status Reduce(std::span<float> data, ReduceOp op, int root) override {
    return ReduceBytes(std::as_writable_bytes(data), {Element::kFloat, op}, root);
  }

  Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out) override {
    RM_TRY(CheckAllToAll(*this, in, out));
    if (world() == 1 && !in.empty()) CopyBytes(out.data(), in.data(), in.size());
    return Run(MakeCall(OperationKind::kAllToAll), in.size(),
               [&](const Operation& operation) { return PairwiseAllToAll(*transport_, operation, in, out); });
  }

  Status Barrier() override {
    return Run(MakeCall(OperationKind::kBarrier), std::nullopt,
               [&](const Operation& operation) { return DoublingBarrier(*transport_, operation); });
  }

  Status Send(std::span<const std::byte> data, int peer) override {
    RM_TRY(CheckPeer(*this, peer));
    return Keep(SendBulk(*transport_, data, peer));
  }
  Status Receive(std::span<std::byte> data, int peer) override {
    RM_TRY(CheckPeer(*this, peer));
    return Keep(ReceiveBulk(*transport_, data, peer));
  }
  void ShowWait() const override { transport_->ShowWait(); }

 private:
  size_t Small(size_t limit) const { return std::min(limit, transport_->segment_bytes()); }

  Status AllReduceBytes(std::span<std::byte> data, const Combiner& combiner) {
    return Run(MakeCall(OperationKind::kAllReduce, &combiner), data.size(), [&](const Operation& operation) {
      if (data.size() <= Small(kDoublingBytes))
        return DoublingAllReduce(*transport_, operation, data, combiner);
      if (world() == 2) return ExchangeAllReduce(*transport_, operation, data, combiner);
      if (world() <= kDirectWorld && data.size() <= kDirectBytes)
        return DirectAllReduce(*transport_, operation, data, combiner);
      return RingAllReduce(*transport_, operation, data, combiner);
    });
  }
  Status ReduceScatterBytes(std::span<std::byte> data, const Combiner& combiner) {
    RM_TRY(CheckShares(*this, data.size() / kElementBytes));
    return Run(MakeCall(OperationKind::kReduceScatter, &combiner), data.size(),
               [&](const Operation& operation) {
                 return RingReduceScatter(*transport_, operation, data, combiner);
               });
  }
  Status ReduceBytes(std::span<std::byte> data, const Combiner& combiner, int root) {
    RM_TRY(CheckRank(*this, root));
    return Run(
        MakeCall(OperationKind::kReduce, &combiner, root), data.size(), [&](const Operation& operation) {
          return data.size() <= Small(kTreeBytes) ? TreeReduce(*transport_, operation, data, combiner, root)
                                                  : RingReduce(*transport_, operation, data, combiner, root);
        });
  }

  // `bytes`: none for an operation without data, which is no operation on empty data.
  template <class Algorithm>
  Status Run(uint32_t call, std::optional<size_t> bytes, const Algorithm& algorithm) {
    if (failure_) return *failure_;
    const uint32_t number = operations_++;
    if (bytes == size_t{0} || world() == 1) return Ok();
    return Keep(algorithm(Operation{number, call, bytes.value_or(0)}));
  }
  Status Keep(Status status) {
    if (!status.ok() && !failure_) failure_ = status.error();
    return status;
  }

  std::unique_ptr<Transport> transport_;
  uint32_t operations_ = 0;
  std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<Communicator> NewMessageCommunicator(std::unique_ptr<Transport> transport) {
  return std::make_unique<MessageCommunicator>(std::move(transport));
}

}  // namespace ringmaster::fabric
