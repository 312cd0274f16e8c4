// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/collectives.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "base/file.h"
#include "base/host_name.h"
#include "base/log.h"
#include "worker/compute/cuda/rma_collectives.h"
#include "worker/compute/cuda/runtime/event.h"
#include "worker/fabric/nccl/blocking.h"
#include "worker/fabric/nccl/domain.h"

namespace ringmaster::cuda {
namespace {

namespace nccl = fabric::nccl;

constexpr int kDeviceIsStuck = 74;  // exit code for the agent: a new process may be able to use the device

// Identifies what NCCL sees as one machine. Two pods on one node differ: neither sees the other's memory.
std::string HostId() {
  const Result<std::string> boot = ReadFile("/proc/sys/kernel/random/boot_id", 256);
  return HostName() + " " + (boot.ok() ? *boot : std::string());
}

// As NCCL does: a user may declare pods of one node to be one machine.
std::string NcclHostId() {
  const char* const said = std::getenv("NCCL_HOSTID");
  return said != nullptr ? said : HostId();
}

// NCCL reads its numbers with strtoll.
bool MayShareGpu() {
  const char* const said = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return said != nullptr && std::strtoll(said, nullptr, 0) != 0;
}

nccl::EventQuery RecordCudaEvent(Stream stream) {
  Result<Event> event = Event::Create();
  if (!event.ok()) return [error = event.error()]() -> Result<bool> { return error; };
  const auto point = std::make_shared<Event>(std::move(*event));
  point->Record(stream);
  return [point] { return point->Query(); };
}

void ExitProcess(const std::string& why) {
  log::Error("{}; exiting, a new trainer will join", why);
  ::_exit(kDeviceIsStuck);
}

}  // namespace

Collectives::Collectives(OwnedStream stream, const nccl::Api& nccl)
    : stream_(std::move(stream)), arenas_(nccl, stream_.get()) {}
Collectives::~Collectives() = default;

Result<std::unique_ptr<Collectives>> Collectives::Create(const DeviceProperties& gpu,
                                                         std::string_view transport) {
  RM_ASSIGN(OwnedStream stream, OwnedStream::Create());
  // UCX reads peers' memory through CUDA's legacy IPC, which supports memory of cudaMalloc but not of NCCL.
  if (transport == "ucx") return std::make_unique<Collectives>(std::move(stream), nccl::Api{});
  Result<nccl::Api> api = nccl::LoadApi();
  if (!api.ok()) {
    if (api.error().code != Code::kUnavailable) return api.error();
    log::Info("{}", api.error().message);
  }
  auto made = std::make_unique<Collectives>(std::move(stream), api.ok() ? *api : nccl::Api{});
  nccl::DomainOptions options;
  options.gpu = gpu.uuid;
  options.bus = gpu.pci;
  options.host_id = NcclHostId();
  options.shares_gpu = MayShareGpu();
  options.communicator.record_event = RecordCudaEvent;
  options.communicator.exit_process = ExitProcess;
  RM_ASSIGN(made->domain_, nccl::Domain::Create(api.ok() ? *api : nccl::Api{}, std::move(options)));
  return made;
}

Result<std::unique_ptr<fabric::AsyncCommunicator>> Collectives::Connect(fabric::Communicator* host,
                                                                        const std::atomic<bool>* cancel) {
  if (domain_ == nullptr) {
    if (rma_ == nullptr) rma_ = RmaCollectives::Create(stream_.get(), HostId(), memory_);
    return rma_->Connect(host, cancel);
  }
  RM_ASSIGN(auto device, domain_->Connect(host, cancel));
  if (device == nullptr) return std::unique_ptr<fabric::AsyncCommunicator>();
  const std::string transport_name = domain_->TransportName();
  if (transport_name.ends_with(":socket"))
    log::Warn("gradients travel over {}: {}", transport_name, domain_->WhySockets());
  return nccl::MakeBlocking(
      std::move(device), host, stream_.get(),
      [](nccl::Stream stream, std::span<std::byte> to, std::span<const std::byte> from) {
        CopyOnDevice(stream, to.data(), from.data(), static_cast<int64_t>(from.size()));
      });
}

Result<Arenas::Arena> Collectives::Allocate(int64_t bytes) {
  RM_ASSIGN(const Arenas::Arena arena, arenas_.Allocate(bytes));
  if (arena.memory.empty()) return arena;
  memory_.push_back(arena.memory);
  if (domain_ != nullptr) domain_->Register(arena.memory, arena.from_nccl);
  return arena;
}

std::string Collectives::Transport() {
  if (domain_ == nullptr) return rma_ == nullptr ? std::string() : rma_->transport();
  const std::string name = domain_->TransportName();
  return name == "none" ? std::string() : name;
}

}  // namespace ringmaster::cuda
