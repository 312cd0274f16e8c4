// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/shm/communicator.h"

#include <utility>

#include "worker/fabric/arguments.h"
#include "worker/fabric/shm/collectives.h"
#include "worker/fabric/shm/transfer.h"

namespace ringmaster::fabric::shm {
namespace {

class ShmCommunicator final : public Communicator {
 public:
  explicit ShmCommunicator(std::unique_ptr<Group> group)
      : group_(std::move(group)), collectives_(*group_), transfers_(*group_) {}

  int rank() const override { return group_->rank(); }
  int world() const override { return group_->world(); }
  uint64_t generation() const override { return group_->generation(); }

  Status AllReduce(std::span<int32_t> data, ReduceOp op) override {
    return collectives_.Reduce(std::as_writable_bytes(data), {Element::kInt32, op}, -1);
  }
  Status AllReduce(std::span<float> data, ReduceOp op) override {
    return collectives_.Reduce(std::as_writable_bytes(data), {Element::kFloat, op}, -1);
  }
  Status ReduceScatter(std::span<int32_t> data, ReduceOp op) override {
    RM_TRY(CheckShares(*this, data.size()));
    return collectives_.ReduceScatter(std::as_writable_bytes(data), {Element::kInt32, op});
  }
  Status ReduceScatter(std::span<float> data, ReduceOp op) override {
    RM_TRY(CheckShares(*this, data.size()));
    return collectives_.ReduceScatter(std::as_writable_bytes(data), {Element::kFloat, op});
  }
  Status AllGather(std::span<std::byte> data) override {
    RM_TRY(CheckShares(*this, data.size()));
    return collectives_.AllGather(data);
  }
  Status Broadcast(std::span<std::byte> data, int root) override {
    RM_TRY(CheckRank(*this, root));
    return collectives_.Broadcast(data, root);
  }
  Status Reduce(std::span<int32_t> data, ReduceOp op, int root) override {
    RM_TRY(CheckRank(*this, root));
    return collectives_.Reduce(std::as_writable_bytes(data), {Element::kInt32, op}, root);
  }
  Status Reduce(std::span<float> data, ReduceOp op, int root) override {
    RM_TRY(CheckRank(*this, root));
    return collectives_.Reduce(std::as_writable_bytes(data), {Element::kFloat, op}, root);
  }
  Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out) override {
    RM_TRY(CheckAllToAll(*this, in, out));
    return collectives_.AllToAll(in, out);
  }
  Status Barrier() override { return collectives_.Barrier(); }
  Status Send(std::span<const std::byte> data, int peer) override {
    RM_TRY(CheckPeer(*this, peer));
    return transfers_.Send(data, peer);
  }
  Status Receive(std::span<std::byte> data, int peer) override {
    RM_TRY(CheckPeer(*this, peer));
    return transfers_.Receive(data, peer);
  }
  void ShowWait() const override { group_->ShowWait(); }

 private:
  std::unique_ptr<Group> group_;
  Collectives collectives_;
  Transfers transfers_;
};

}  // namespace

std::unique_ptr<Communicator> NewCommunicator(std::unique_ptr<Group> group) {
  return std::make_unique<ShmCommunicator>(std::move(group));
}

}  // namespace ringmaster::fabric::shm
