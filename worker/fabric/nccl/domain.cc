// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/domain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace ringmaster::fabric::nccl {
namespace {

// Rank 0 broadcasts it, even without an id: the other ranks must not wait for one.
struct UniqueIdMessage {
  int32_t result = kSuccess;
  UniqueId id{};
};

Configuration NonBlocking() {
  Configuration configuration;
  configuration.blocking = 0;
  return configuration;
}

template <class T>
std::span<std::byte> BytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

Result<std::unique_ptr<Domain>> Domain::Create(const Api& api, DomainOptions options) {
  RM_ASSIGN(DebugLog log, DebugLog::Open());
  return std::unique_ptr<Domain>(new Domain(api, std::move(options), std::move(log)));
}

Domain::Domain(const Api& api, DomainOptions options, DebugLog log)
    : api_(api), options_(std::move(options)), log_(std::move(log)) {}

Domain::~Domain() = default;

void Domain::Register(std::span<std::byte> memory, bool from_nccl) {
  memory_.push_back(memory);
  all_nccl_memory_ = all_nccl_memory_ && from_nccl;
}

Result<std::unique_ptr<DeviceCommunicator>> Domain::Connect(Communicator* host,
                                                            const std::atomic<bool>* cancel) {
  std::shared_ptr<ManagedCommunicator> older;
  {
    const MutexLock lock(mutex_);
    older = current_;
  }
  CHECK(older.use_count() <= 2, "the older communicator still exists");
  const ManagedCommunicator::Reusability reusability =
      older == nullptr ? ManagedCommunicator::Reusability::kNone : older->WaitUntilStopped();

  const auto world = static_cast<size_t>(host->world());
  std::vector<MemberInfo> members(world);
  MemberInfo& own = members[static_cast<size_t>(host->rank())];
  own.gpu = DigestOf(options_.gpu);
  own.bus = DigestOf(options_.bus);
  own.host = DigestOf(options_.host_id);
  own.nccl_memory = all_nccl_memory_ ? 1 : 0;
  own.version = api_.version;
  own.shares_gpu = options_.shares_gpu && api_.version >= kSharesGpuVersion ? 1 : 0;
  if (reusability != ManagedCommunicator::Reusability::kNone) {
    own.parent = generation_;
    own.parent_rank = rank_;
    own.parent_world = world_;
    const bool can_grow = api_.grow != nullptr && api_.grow_id != nullptr && !growing_failed_;
    own.growable = can_grow && reusability == ManagedCommunicator::Reusability::kShrinkOrGrow ? 1 : 0;
  }
  RM_TRY(host->AllGather(std::as_writable_bytes(std::span(members))));
  RM_ASSIGN(const Plan plan, MakePlan(members));

  if (plan.method == Plan::Method::kNone) log::Info("NCCL does not carry gradients: {}", plan.why_none);
  const bool wanted = plan.method != Plan::Method::kNone && plan.method != Plan::Method::kSingle;
  {
    const MutexLock lock(mutex_);
    current_.reset();
    generation_ = host->generation();
    rank_ = host->rank();
    world_ = host->world();
    in_use_ = wanted;
    one_host_ = plan.one_host;
    facts_.transports.clear();
  }
  std::shared_ptr<ManagedCommunicator> managed;
  if (plan.method == Plan::Method::kShrink || plan.method == Plan::Method::kGrow) {
    ManagedCommunicator* const parent =
        reusability == ManagedCommunicator::Reusability::kNone ? nullptr : older.get();
    RM_ASSIGN(managed, DeriveFromParent(host, plan, parent, cancel));
  }
  older.reset();  // frees its GPU memory first: a new communicator needs as much
  if (wanted && managed == nullptr) {
    RM_ASSIGN(managed, InitFromScratch(host, cancel));
  }
  if (plan.method == Plan::Method::kNone) return std::unique_ptr<DeviceCommunicator>();
  if (managed != nullptr && plan.register_memory) RegisterAll(managed.get());
  ReadLog();
  return std::make_unique<DeviceCommunicator>(&api_, std::move(managed), options_.communicator.record_event,
                                              host->rank(), host->world(), host->generation());
}

Result<std::shared_ptr<ManagedCommunicator>> Domain::InitFromScratch(Communicator* host,
                                                                     const std::atomic<bool>* cancel) {
  RM_ASSIGN(const UniqueId id,
            BroadcastUniqueId(host, [this](UniqueId* created) { return api_.unique_id(created); }));
  const std::shared_ptr<ManagedCommunicator> managed = NewManaged(cancel);
  Configuration configuration = NonBlocking();
  RM_TRY(managed->Form([&](Handle* handle) {
    return api_.init_rank(handle, host->world(), id, host->rank(), &configuration);
  }));
  return managed;
}

// A failure at one member may be a success at the others, and the parent is used up; so all members agree on
// the outcome. Otherwise the failed member would wait for the coordinator, and fail again in the next
// attempt.
Result<std::shared_ptr<ManagedCommunicator>> Domain::DeriveFromParent(Communicator* host, const Plan& plan,
                                                                      ManagedCommunicator* parent,
                                                                      const std::atomic<bool>* cancel) {
  const std::shared_ptr<ManagedCommunicator> managed = NewManaged(cancel);
  Configuration configuration = NonBlocking();
  const Status formed = plan.method == Plan::Method::kGrow
                            ? Grow(host, parent, managed.get())
                            : managed->Shrink(parent, plan.excluded, &configuration);
  std::vector<uint8_t> all_formed(static_cast<size_t>(host->world()));
  all_formed[static_cast<size_t>(host->rank())] = formed.ok() ? 1 : 0;
  const bool hopeless = !formed.ok() && (formed.error().code == Code::kGone || *cancel);
  const Status agreed = hopeless ? formed : host->AllGather(std::as_writable_bytes(std::span(all_formed)));
  if (agreed.ok() && std::ranges::count(all_formed, 0) == 0) return managed;
  managed->Release(false);
  RM_TRY(agreed);
  log::Warn(
      "NCCL could not derive a communicator from the previous one at {} of {} members; all create a new "
      "one{}",
      std::ranges::count(all_formed, 0), host->world(), formed.ok() ? "" : ": " + formed.error().message);
  growing_failed_ = growing_failed_ || plan.method == Plan::Method::kGrow;
  return std::shared_ptr<ManagedCommunicator>();
}

Status Domain::Grow(Communicator* host, ManagedCommunicator* parent, ManagedCommunicator* managed) {
  RM_ASSIGN(const UniqueId id,
            BroadcastUniqueId(host, [&](UniqueId* created) { return managed->GetGrowId(parent, created); }));
  Configuration configuration = NonBlocking();
  if (parent != nullptr)
    return managed->Grow(parent, host->world(), host->rank() == 0 ? &id : nullptr, &configuration);
  return managed->Form([&](Handle* handle) {
    return api_.grow(nullptr, host->world(), &id, host->rank(), handle, &configuration);
  });
}

std::shared_ptr<ManagedCommunicator> Domain::NewManaged(const std::atomic<bool>* cancel) {
  auto managed = std::make_shared<ManagedCommunicator>(&api_, &options_.communicator, cancel);
  std::shared_ptr<ManagedCommunicator> last = managed;
  {
    const MutexLock lock(mutex_);
    current_.swap(last);
  }
  return managed;
}

Result<UniqueId> Domain::BroadcastUniqueId(Communicator* host, const std::function<int(UniqueId*)>& make) {
  UniqueIdMessage message;
  if (host->rank() == 0) message.result = make(&message.id);
  RM_TRY(host->Broadcast(BytesOf(message), 0));
  if (message.result == kSuccess) return message.id;
  return Error{Code::kUnavailable,
               fmt::format("NCCL: rank 0 cannot create a unique id ({}): does NCCL_SOCKET_IFNAME name an "
                           "interface of its pod?",
                           api_.error_string(message.result))};
}

// Without registration NCCL copies the data: slower, but correct.
void Domain::RegisterAll(ManagedCommunicator* managed) {
  if (api_.register_memory == nullptr) return;  // 2.18
  for (const std::span<std::byte> memory : memory_) {
    void* token = nullptr;  // freed with the communicator
    const int result = managed->Call(
        [&](Handle handle) { return api_.register_memory(handle, memory.data(), memory.size(), &token); });
    if (result != kSuccess)
      log::Warn("NCCL does not register {} bytes ({}): its operations copy the data", memory.size(),
                api_.error_string(result));
  }
}

std::string Domain::TransportName() {
  ReadLog();
  const MutexLock lock(mutex_);
  return !in_use_ ? "none" : nccl::TransportName(facts_, one_host_);
}

std::string Domain::WhySockets() {
  const MutexLock lock(mutex_);
  return nccl::WhySockets(facts_);
}

void Domain::ReadLog() {
  const MutexLock lock(mutex_);
  for (const std::string& line : log_.Read()) {
    ParseLogLine(&facts_, line);
    if (line.find("NCCL WARN") != std::string::npos) {
      log::Warn("{}", line);
    } else if (log_.show() == DebugLog::Show::kAll) {
      log::Info("{}", line);
    }
  }
}

}  // namespace ringmaster::fabric::nccl
