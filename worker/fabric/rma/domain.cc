// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/rma/domain.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"

namespace ringmaster::fabric::rma {

std::unique_ptr<Domain> Domain::Create(const DomainOptions& options) {
  auto domain = std::unique_ptr<Domain>(new Domain(options));
  auto context = ucx::Context::Create(UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP, true);
  Memory& memory = domain->memory_;
  memory.type = options.cuda ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
  if (!context.ok()) {
    domain->unsupported_reason_ = context.error().message;
  } else if (!(*context)->Supports(memory.type)) {
    domain->unsupported_reason_ = fmt::format("UCX {} does not support CUDA here", ucx::LibraryVersion());
  } else if (options.cuda && !ucx::CanDisableEmulation()) {
    domain->unsupported_reason_ = fmt::format("UCX {} is older than 1.21", ucx::LibraryVersion());
  } else {
    memory.context = std::move(*context);
  }
  return domain;
}

void Domain::Register(std::span<std::byte> memory) {
  if (!supported()) return;
  Result<ucx::RegisteredMemory> mapped = memory_.context->Register(memory, memory_.type);
  if (mapped.ok())
    memory_.regions.push_back(std::move(*mapped));
  else
    unsupported_reason_ = mapped.error().message;
}

void Domain::LogOnce(const std::string& why) {
  if (std::exchange(last_logged_, why) != why) log::Info("RMA does not carry gradients: {}", why);
}

std::unique_ptr<Group> Domain::NewGroup(Communicator* host, const std::atomic<bool>* cancel,
                                        PeerInfo* own) const {
  own->unsupported_reason = unsupported_reason_;
  own->host_id = options_.host_id;
  if (!supported()) return nullptr;
  auto group = Group::Create(&memory_, {.rank = host->rank(),
                                        .world = host->world(),
                                        .generation = host->generation(),
                                        .cancel = cancel,
                                        .timeout = options_.timeout,
                                        .on_wait = [host] { host->ShowWait(); }});
  if (!group.ok()) {
    own->unsupported_reason = group.error().message;
    return nullptr;
  }
  own->worker = (*group)->address();
  for (const ucx::RegisteredMemory& region : memory_.regions)
    own->regions.push_back(
        {reinterpret_cast<uint64_t>(region.memory().data()), region.memory().size(), region.key()});
  return std::move(*group);
}

Result<std::string> Domain::ConnectGroup(Group* group, std::vector<PeerInfo> infos) const {
  std::vector<bool> one_host;
  for (const PeerInfo& info : infos) one_host.push_back(info.host_id == options_.host_id);
  RM_TRY(group->Connect(std::move(infos)));
  std::set<std::string> transports;
  for (int q = 0; q < group->world(); ++q) {
    if (q == group->rank()) continue;
    const std::string lanes = group->Transports(q);
    const std::string found = options_.cuda ? GpuTransports(one_host[static_cast<size_t>(q)], lanes) : lanes;
    if (found.empty())
      return Error{Code::kUnavailable,
                   fmt::format("neither cuda_ipc nor RDMA connects rank {} to rank {}", group->rank(), q)};
    transports.merge(SplitNames(found));
  }
  return fmt::format("ucx:{}", fmt::join(transports, "+"));
}

Result<bool> Domain::AllAgree(Communicator* host, const std::string& why_not) {
  int32_t refusals = why_not.empty() ? 0 : 1;
  RM_TRY(host->AllReduce(std::span(&refusals, 1), ReduceOp::kSum));
  if (refusals > 0)
    LogOnce(why_not.empty() ? fmt::format("{} of {} members cannot use it", refusals, host->world())
                            : why_not);
  return refusals == 0;
}

Result<std::unique_ptr<AsyncCommunicator>> Domain::Connect(Communicator* host,
                                                           const std::atomic<bool>* cancel, DeviceWork* work,
                                                           std::span<std::byte> scratch) {
  transport_.clear();
  if (host->world() == 1) return std::unique_ptr<AsyncCommunicator>();
  PeerInfo own;
  own.scratch_bytes = scratch.size();
  std::unique_ptr<Group> group = NewGroup(host, cancel, &own);
  RM_ASSIGN(std::vector<PeerInfo> infos, ExchangePeerInfo(host, own));
  if (const std::string why = WhyIncompatible(infos); !why.empty()) {
    LogOnce(why);
    return std::unique_ptr<AsyncCommunicator>();
  }
  const Result<std::string> transports = ConnectGroup(group.get(), std::move(infos));
  RM_ASSIGN(const bool reached, AllAgree(host, transports.ok() ? "" : transports.error().message));
  if (!reached) return std::unique_ptr<AsyncCommunicator>();
  RM_ASSIGN(const std::optional<int> unread, group->ProbePeers(scratch));
  RM_ASSIGN(
      const bool all_read,
      AllAgree(host, unread
                         ? fmt::format("rank {} cannot read memory of rank {} by {} without help of its host",
                                       group->rank(), *unread, *transports)
                         : ""));
  if (!all_read) return std::unique_ptr<AsyncCommunicator>();
  transport_ = *transports;
  return MakeCommunicator(std::move(group), work, scratch);
}

}  // namespace ringmaster::fabric::rma
