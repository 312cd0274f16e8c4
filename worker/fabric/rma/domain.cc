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
    domain->refusal_ = context.error().message;
  } else if (!(*context)->Knows(memory.type)) {
    domain->refusal_ = fmt::format("UCX {} has no support for CUDA here", ucx::LibraryVersion());
  } else if (options.cuda && !ucx::CanBeDirect()) {
    domain->refusal_ = fmt::format("UCX {} is older than 1.21", ucx::LibraryVersion());
  } else {
    memory.context = std::move(*context);
  }
  return domain;
}

void Domain::Register(std::span<std::byte> memory) {
  if (!able()) return;
  Result<ucx::Mapped> mapped = memory_.context->Map(memory, memory_.type);
  if (mapped.ok())
    memory_.regions.push_back(std::move(*mapped));
  else
    refusal_ = mapped.error().message;
}

void Domain::SayOnce(const std::string& why) {
  if (std::exchange(said_, why) != why)
    log::Info("gradients do not travel by reads of GPUs' memory: {}", why);
}

std::unique_ptr<Group> Domain::NewGroup(Communicator* host, const std::atomic<bool>* cancel,
                                        Offer* own) const {
  own->refusal = refusal_;
  own->host_id = options_.host_id;
  if (!able()) return nullptr;
  auto made = Group::Create(&memory_, {.rank = host->rank(),
                                       .world = host->world(),
                                       .generation = host->generation(),
                                       .cancel = cancel,
                                       .timeout = options_.timeout});
  if (!made.ok()) {
    own->refusal = made.error().message;
    return nullptr;
  }
  own->worker = (*made)->address();
  for (const ucx::Mapped& region : memory_.regions)
    own->regions.push_back(
        {reinterpret_cast<uint64_t>(region.memory().data()), region.memory().size(), region.key()});
  return std::move(*made);
}

Result<std::string> Domain::Reach(Group* group, std::vector<Offer> offers) const {
  std::vector<bool> one_host;
  for (const Offer& offer : offers) one_host.push_back(offer.host_id == options_.host_id);
  RM_TRY(group->Reach(std::move(offers)));
  std::set<std::string> carriers;
  for (int q = 0; q < group->world(); ++q) {
    if (q == group->rank()) continue;
    const std::string lanes = group->Lanes(q);
    const std::string found = options_.cuda ? Carriers(one_host[static_cast<size_t>(q)], lanes) : lanes;
    if (found.empty())
      return Error{Code::kUnavailable,
                   fmt::format("neither cuda_ipc nor RDMA leads from rank {} to rank {}", group->rank(), q)};
    carriers.merge(Names(found));
  }
  return fmt::format("ucx:{}", fmt::join(carriers, "+"));
}

Result<bool> Domain::Agree(Communicator* host, const std::string& why_not) {
  int32_t refusals = why_not.empty() ? 0 : 1;
  RM_TRY(host->AllReduce(std::span(&refusals, 1), ReduceOp::kSum));
  if (refusals > 0)
    SayOnce(why_not.empty() ? fmt::format("{} of {} members cannot", refusals, host->world()) : why_not);
  return refusals == 0;
}

Result<std::unique_ptr<OrderedCommunicator>> Domain::Connect(Communicator* host,
                                                             const std::atomic<bool>* cancel,
                                                             DeviceWork* work, std::span<std::byte> scratch) {
  transport_.clear();
  if (host->world() == 1) return std::unique_ptr<OrderedCommunicator>();
  Offer own;
  own.scratch_bytes = scratch.size();
  std::unique_ptr<Group> group = NewGroup(host, cancel, &own);
  RM_ASSIGN(std::vector<Offer> offers, Exchange(host, own));
  if (const std::string why = WhyNot(offers); !why.empty()) {
    SayOnce(why);
    return std::unique_ptr<OrderedCommunicator>();
  }
  const Result<std::string> carriers = Reach(group.get(), std::move(offers));
  RM_ASSIGN(const bool reached, Agree(host, carriers.ok() ? "" : carriers.error().message));
  if (!reached) return std::unique_ptr<OrderedCommunicator>();
  RM_ASSIGN(const std::optional<int> unread, group->Try(scratch));
  RM_ASSIGN(const bool all_read,
            Agree(host, unread ? fmt::format("rank {} cannot read rank {}'s by {} without the host's help",
                                             group->rank(), *unread, *carriers)
                               : ""));
  if (!all_read) return std::unique_ptr<OrderedCommunicator>();
  transport_ = *carriers;
  return MakeCommunicator(std::move(group), work, scratch);
}

}  // namespace ringmaster::fabric::rma
