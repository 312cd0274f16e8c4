#include "worker/fabric/fabric.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "worker/fabric/address.h"
#include "worker/fabric/shm/domain.h"

namespace ringmaster::fabric {
namespace {

class LocalFabric final : public Fabric {
 public:
  LocalFabric(MemberAddress self, std::unique_ptr<shm::Domain> shm)
      : self_(std::move(self)), shm_(std::move(shm)) {}

  Result<std::span<std::byte>> Allocate(size_t bytes, std::string_view label) override {
    return shm_->Allocate(bytes, label);
  }

  std::string Address() const override {
    MemberAddress address = self_;
    address.segments = shm_->Segments();
    return EncodeAddress(address);
  }

  Result<std::unique_ptr<Communicator>> Connect(const Group& group) override {
    std::vector<MemberAddress> members;
    for (size_t q = 0; q < group.addresses.size(); ++q) {
      auto member = DecodeAddress(group.addresses[q]);
      if (!member.ok()) return member.error().In(fmt::format("address of rank {}", q));
      members.push_back(std::move(*member));
    }
    if (group.rank < 0 || static_cast<size_t>(group.rank) >= members.size() ||
        members[group.rank].uuid != self_.uuid)
      return Error{Code::kInvalid, fmt::format("rank {} is not ours", group.rank)};
    for (const MemberAddress& member : members)
      if (member.host_id != self_.host_id)
        return Error{Code::kInvalid, "transport shm: members are on different hosts"};
    return shm_->Connect(group.generation, group.rank, members);
  }

  void Abort(uint64_t generation) override { shm_->Abort(generation); }
  std::string TransportName() const override { return "shm"; }

 private:
  const MemberAddress self_;
  std::unique_ptr<shm::Domain> shm_;
};

}  // namespace

Result<std::unique_ptr<Fabric>> Fabric::Create(const FabricOptions& options) {
  MemberAddress self;
  self.uuid = NewUuid();
  self.host_id = options.host_id.empty() ? HostId() : options.host_id;
  self.pid = ::getpid();
  RM_ASSIGN(auto shm, shm::Domain::Create(self.uuid, options.timeout));
  return std::unique_ptr<Fabric>(std::make_unique<LocalFabric>(std::move(self), std::move(shm)));
}

}  // namespace ringmaster::fabric
