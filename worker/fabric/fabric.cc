// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/fabric.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "worker/fabric/address.h"
#include "worker/fabric/message_communicator.h"
#include "worker/fabric/shm/domain.h"
#include "worker/fabric/ucx/domain.h"

namespace ringmaster::fabric {
namespace {

enum class TransportChoice { kAuto, kShm, kUcx };

class ShmUcxFabric final : public Fabric {
 public:
  ShmUcxFabric(TransportChoice choice, MemberAddress self, std::unique_ptr<shm::Domain> shm,
               std::unique_ptr<ucx::Domain> ucx, std::shared_ptr<Aborter> aborter)
      : choice_(choice),
        self_(std::move(self)),
        shm_(std::move(shm)),
        ucx_(std::move(ucx)),
        aborter_(std::move(aborter)) {
    if (aborter_ != nullptr) aborter_->Attach(this);
  }

  ~ShmUcxFabric() override {
    if (aborter_ != nullptr) aborter_->Detach();
  }

  Result<std::span<std::byte>> Allocate(size_t bytes, std::string_view label) override {
    return shm_->Allocate(bytes, label);
  }

  std::string Address() const override {
    MemberAddress address = self_;
    address.segments = shm_->Segments();
    if (ucx_ != nullptr) address.ucx = ucx_->address();
    return EncodeAddress(address);
  }

  Result<std::unique_ptr<Communicator>> Connect(const Membership& membership) override {
    std::vector<MemberAddress> members;
    for (size_t q = 0; q < membership.addresses.size(); ++q) {
      auto member = DecodeAddress(membership.addresses[q]);
      if (!member.ok()) return member.error().In(fmt::format("address of rank {}", q));
      members.push_back(std::move(*member));
    }
    if (membership.rank < 0 || static_cast<size_t>(membership.rank) >= members.size() ||
        members[membership.rank].uuid != self_.uuid)
      return Error{Code::kInvalid, fmt::format("rank {} is not this process", membership.rank)};

    const bool one_host = std::all_of(members.begin(), members.end(), [&](const MemberAddress& member) {
      return member.host_id == self_.host_id;
    });
    if (choice_ == TransportChoice::kShm && !one_host)
      return Error{Code::kInvalid,
                   "transport shm needs all members on one host; they are on different hosts"};
    if (choice_ == TransportChoice::kUcx || !one_host) {
      RM_ASSIGN(auto transport, ucx_->Connect(membership.generation, membership.rank, members));
      name_ = members.size() == 1 ? "none" : "ucx:" + ucx_->Transports();
      return NewMessageCommunicator(std::move(transport));
    }
    RM_ASSIGN(auto communicator, shm_->Connect(membership.generation, membership.rank, members));
    name_ = members.size() == 1 ? "none" : "shm";
    return communicator;
  }

  std::vector<int32_t> Unreachable() const override {
    return ucx_ == nullptr ? std::vector<int32_t>{} : ucx_->unreachable();
  }

  void Abort(uint64_t generation) override {
    shm_->Abort(generation);
    if (ucx_ != nullptr) ucx_->Abort(generation);
  }

  std::string TransportName() const override { return name_; }

 private:
  const TransportChoice choice_;
  const MemberAddress self_;
  const std::unique_ptr<shm::Domain> shm_;
  const std::unique_ptr<ucx::Domain> ucx_;  // nullptr with TransportChoice::kShm
  const std::shared_ptr<Aborter> aborter_;  // may be null
  std::string name_ = "none";
};

Result<TransportChoice> ParseTransport(const std::string& transport) {
  if (transport == "auto") return TransportChoice::kAuto;
  if (transport == "shm") return TransportChoice::kShm;
  if (transport == "ucx") return TransportChoice::kUcx;
  return Error{Code::kInvalid, fmt::format("transport: must be auto, shm or ucx (got \"{}\")", transport)};
}

}  // namespace

void Aborter::Abort(uint64_t generation) {
  const MutexLock lock(mutex_);
  newest_ = std::max(newest_, generation);
  if (fabric_ != nullptr) fabric_->Abort(generation);
}

void Aborter::Attach(Fabric* fabric) {
  const MutexLock lock(mutex_);
  CHECK(fabric_ == nullptr, "an aborter serves one fabric at a time");
  fabric_ = fabric;
  if (newest_ > 0) fabric_->Abort(newest_);
}

void Aborter::Detach() {
  const MutexLock lock(mutex_);
  fabric_ = nullptr;
}

Result<std::unique_ptr<Fabric>> Fabric::Create(const FabricOptions& options) {
  RM_ASSIGN(const TransportChoice choice, ParseTransport(options.transport));
  MemberAddress self;
  self.uuid = NewUuid();
  self.host_id = options.host_id.empty() ? HostId() : options.host_id;
  self.pid = ::getpid();
  RM_ASSIGN(auto shm, shm::Domain::Create(self.uuid, options.timeout, options.on_wait));
  std::unique_ptr<ucx::Domain> ucx;
  if (choice != TransportChoice::kShm) {
    RM_ASSIGN(ucx, ucx::Domain::Create(self.uuid, options.timeout, options.on_wait));
  }
  return std::unique_ptr<Fabric>(std::make_unique<ShmUcxFabric>(choice, std::move(self), std::move(shm),
                                                                std::move(ucx), options.aborter));
}

}  // namespace ringmaster::fabric
