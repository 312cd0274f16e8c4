// SPDX-License-Identifier: Apache-2.0

#include "tests/unit/fabric/rma_member.h"

#include <algorithm>
#include <utility>

namespace ringmaster::fabric::testing {
namespace {

// An RMA communicator together with the host's communicator over which it was created.
class CommunicatorWithHost final : public Communicator {
 public:
  CommunicatorWithHost(std::unique_ptr<Communicator> host, std::unique_ptr<Communicator> made)
      : host_(std::move(host)), made_(std::move(made)) {}
  int rank() const override { return made_->rank(); }
  int world() const override { return made_->world(); }
  uint64_t generation() const override { return made_->generation(); }
  Status AllReduce(std::span<int32_t> data, ReduceOp op) override { return made_->AllReduce(data, op); }
  Status AllReduce(std::span<float> data, ReduceOp op) override { return made_->AllReduce(data, op); }
  Status ReduceScatter(std::span<int32_t> data, ReduceOp op) override {
    return made_->ReduceScatter(data, op);
  }
  Status ReduceScatter(std::span<float> data, ReduceOp op) override { return made_->ReduceScatter(data, op); }
  Status AllGather(std::span<std::byte> data) override { return made_->AllGather(data); }
  Status Broadcast(std::span<std::byte> data, int root) override { return made_->Broadcast(data, root); }
  Status Reduce(std::span<int32_t> data, ReduceOp op, int root) override {
    return made_->Reduce(data, op, root);
  }
  Status Reduce(std::span<float> data, ReduceOp op, int root) override {
    return made_->Reduce(data, op, root);
  }
  Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out) override {
    return made_->AllToAll(in, out);
  }
  Status Barrier() override { return made_->Barrier(); }
  Status Send(std::span<const std::byte> data, int peer) override { return made_->Send(data, peer); }
  Status Receive(std::span<std::byte> data, int peer) override { return made_->Receive(data, peer); }

 private:
  const std::unique_ptr<Communicator> host_;
  const std::unique_ptr<Communicator> made_;
};

}  // namespace

void DeferredWork::Combine(const Operands& operands) {
  deferred_.emplace_back([operands] {
    std::vector<const std::byte*> sources;
    const size_t bytes = operands.own.size();
    for (size_t at = 0; at < operands.others.size(); at += bytes)
      sources.push_back(operands.others.data() + at);
    sources.insert(sources.begin() + operands.rank, operands.own.data());
    operands.combiner.Combine(operands.own.data(), sources, bytes / kElementBytes);
  });
}

void DeferredWork::Copy(std::span<std::byte> to, std::span<const std::byte> from) {
  deferred_.emplace_back([to, from] { std::ranges::copy(from, to.begin()); });
}

Status DeferredWork::Wait() {
  for (const auto& work : std::exchange(deferred_, {})) work();
  return Ok();
}

RmaMember::RmaMember(std::span<std::byte> memory, size_t scratch_bytes, Duration timeout)
    : scratch_(scratch_bytes),
      domain_(rma::Domain::Create({.cuda = false, .host_id = "test", .timeout = timeout})) {
  domain_->Register(memory);
  domain_->Register(scratch_);
}

Result<std::unique_ptr<Communicator>> RmaMember::Connect(std::unique_ptr<Communicator> host,
                                                         const std::atomic<bool>* cancel) {
  if (host->world() == 1) return host;
  RM_ASSIGN(auto made, domain_->Connect(host.get(), cancel, &work_, scratch_));
  if (made == nullptr) return Error{Code::kInternal, "RMA is not available"};
  return std::unique_ptr<Communicator>(
      std::make_unique<CommunicatorWithHost>(std::move(host), std::move(made)));
}

}  // namespace ringmaster::fabric::testing
