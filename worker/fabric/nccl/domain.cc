#include "worker/fabric/nccl/domain.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace ringmaster::fabric::nccl {
namespace {

// From rank 0 to all: whoever cannot get an id must not leave the others waiting for it.
struct Invitation {
  int32_t answer = kSuccess;
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

void Domain::Register(std::span<std::byte> memory) { memory_.push_back(memory); }

Result<std::unique_ptr<DeviceCommunicator>> Domain::Connect(Communicator* host,
                                                            const std::atomic<bool>* cancel) {
  std::shared_ptr<Live> older;
  {
    const std::lock_guard lock(mutex_);
    older = live_;
  }
  CHECK(older.use_count() <= 2, "the older communicator is still there");
  const bool has_parent = older != nullptr && api_.shrink != nullptr && older->Settled();

  const auto world = static_cast<size_t>(host->world());
  std::vector<Card> cards(world);
  Card& own = cards[static_cast<size_t>(host->rank())];
  own.gpu = KeyOf(options_.gpu);
  own.host = KeyOf(options_.host_id);
  own.version = api_.version;
  if (has_parent) {
    own.parent = generation_;
    own.parent_rank = rank_;
    own.parent_world = world_;
  }
  RM_TRY(host->AllGather(std::as_writable_bytes(std::span(cards))));
  RM_ASSIGN(const Plan plan, MakePlan(cards));

  if (plan.way == Plan::Way::kNone) log::Info("gradients do not travel by NCCL: {}", plan.why_none);
  const bool wanted = plan.way == Plan::Way::kFresh || plan.way == Plan::Way::kShrink;
  UniqueId id{};
  if (plan.way == Plan::Way::kFresh) {
    RM_ASSIGN(id, Invite(host));
  }
  std::shared_ptr<Live> live;
  if (wanted) live = std::make_shared<Live>(&api_, &options_.live, cancel);
  {
    const std::lock_guard lock(mutex_);
    live_ = live;
    generation_ = host->generation();
    rank_ = host->rank();
    world_ = host->world();
    in_use_ = wanted;
    one_host_ = plan.one_host;
    facts_.carriers.clear();
  }
  Configuration configuration = NonBlocking();
  if (plan.way == Plan::Way::kShrink) {
    RM_TRY(live->FormFrom(older.get(), plan.excluded, &configuration));
  } else if (plan.way == Plan::Way::kFresh) {
    older.reset();  // its memory on the GPU first: the new one needs as much
    RM_TRY(live->Form([&](Handle* handle) {
      return api_.init_rank(handle, host->world(), id, host->rank(), &configuration);
    }));
  }
  older.reset();
  if (plan.way == Plan::Way::kNone) return std::unique_ptr<DeviceCommunicator>();
  if (live != nullptr) RegisterAll(live.get());
  ReadLog();
  return std::make_unique<DeviceCommunicator>(&api_, std::move(live), options_.live.mark, host->rank(),
                                              host->world(), host->generation());
}

Result<UniqueId> Domain::Invite(Communicator* host) {
  Invitation invitation;
  if (host->rank() == 0) invitation.answer = api_.unique_id(&invitation.id);
  RM_TRY(host->Broadcast(BytesOf(invitation), 0));
  if (invitation.answer == kSuccess) return invitation.id;
  return Error{Code::kUnavailable,
               fmt::format("NCCL: rank 0 cannot invite the others ({}): does NCCL_SOCKET_IFNAME name an "
                           "interface of its pod?",
                           api_.error_string(invitation.answer))};
}

// Without it operations copy: slower, not wrong.
void Domain::RegisterAll(Live* live) {
  if (api_.register_memory == nullptr) return;  // 2.18
  for (const std::span<std::byte> memory : memory_) {
    void* token = nullptr;  // given back with the communicator
    const int answer = live->Call(
        [&](Handle handle) { return api_.register_memory(handle, memory.data(), memory.size(), &token); });
    if (answer != kSuccess)
      log::Warn("NCCL does not register {} bytes ({}): its operations copy them", memory.size(),
                api_.error_string(answer));
  }
}

std::string Domain::TransportName() {
  ReadLog();
  const std::lock_guard lock(mutex_);
  return !in_use_ ? "none" : nccl::TransportName(facts_, one_host_);
}

std::string Domain::WhySockets() {
  const std::lock_guard lock(mutex_);
  return nccl::WhySockets(facts_);
}

void Domain::ReadLog() {
  const std::lock_guard lock(mutex_);
  for (const std::string& line : log_.Read()) {
    Learn(&facts_, line);
    if (line.find("NCCL WARN") != std::string::npos) {
      log::Warn("{}", line);
    } else if (log_.show() == DebugLog::Show::kAll) {
      log::Info("{}", line);
    }
  }
}

}  // namespace ringmaster::fabric::nccl
