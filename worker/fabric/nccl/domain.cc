// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/nccl/domain.h"

#include <fmt/format.h>

#include <algorithm>
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

void Domain::Register(std::span<std::byte> memory, bool own) {
  memory_.push_back(memory);
  own_memory_ = own_memory_ && own;
}

Result<std::unique_ptr<DeviceCommunicator>> Domain::Connect(Communicator* host,
                                                            const std::atomic<bool>* cancel) {
  std::shared_ptr<Live> older;
  {
    const std::lock_guard lock(mutex_);
    older = live_;
  }
  CHECK(older.use_count() <= 2, "the older communicator is still there");
  const Live::Rest rest = older == nullptr ? Live::Rest::kNothing : older->Settled();

  const auto world = static_cast<size_t>(host->world());
  std::vector<Card> cards(world);
  Card& own = cards[static_cast<size_t>(host->rank())];
  own.gpu = KeyOf(options_.gpu);
  own.bus = KeyOf(options_.bus);
  own.host = KeyOf(options_.host_id);
  own.own_memory = own_memory_ ? 1 : 0;
  own.version = api_.version;
  if (rest != Live::Rest::kNothing) {
    own.parent = generation_;
    own.parent_rank = rank_;
    own.parent_world = world_;
    const bool can_grow = api_.grow != nullptr && api_.grow_id != nullptr && !growing_failed_;
    own.may_grow = can_grow && rest == Live::Rest::kWhole ? 1 : 0;
  }
  RM_TRY(host->AllGather(std::as_writable_bytes(std::span(cards))));
  RM_ASSIGN(const Plan plan, MakePlan(cards));

  if (plan.way == Plan::Way::kNone) log::Info("gradients do not travel by NCCL: {}", plan.why_none);
  const bool wanted = plan.way != Plan::Way::kNone && plan.way != Plan::Way::kAlone;
  {
    const std::lock_guard lock(mutex_);
    live_.reset();
    generation_ = host->generation();
    rank_ = host->rank();
    world_ = host->world();
    in_use_ = wanted;
    one_host_ = plan.one_host;
    facts_.carriers.clear();
  }
  std::shared_ptr<Live> live;
  if (plan.way == Plan::Way::kShrink || plan.way == Plan::Way::kGrow) {
    Live* const parent = rest == Live::Rest::kNothing ? nullptr : older.get();
    RM_ASSIGN(live, Succeed(host, plan, parent, cancel));
  }
  older.reset();  // its memory on the GPU first: one that is made from nothing needs as much
  if (wanted && live == nullptr) {
    RM_ASSIGN(live, StartAfresh(host, cancel));
  }
  if (plan.way == Plan::Way::kNone) return std::unique_ptr<DeviceCommunicator>();
  if (live != nullptr && plan.register_memory) RegisterAll(live.get());
  ReadLog();
  return std::make_unique<DeviceCommunicator>(&api_, std::move(live), options_.live.mark, host->rank(),
                                              host->world(), host->generation());
}

Result<std::shared_ptr<Live>> Domain::StartAfresh(Communicator* host, const std::atomic<bool>* cancel) {
  RM_ASSIGN(const UniqueId id, Invite(host, [this](UniqueId* made) { return api_.unique_id(made); }));
  const std::shared_ptr<Live> live = NewLive(cancel);
  Configuration configuration = NonBlocking();
  RM_TRY(live->Form([&](Handle* handle) {
    return api_.init_rank(handle, host->world(), id, host->rank(), &configuration);
  }));
  return live;
}

// What fails for one of them may have worked for the others, and the parent is used up: they agree. Else who
// failed would wait for an order, and whatever is in its way would be there at the next attempt, too.
Result<std::shared_ptr<Live>> Domain::Succeed(Communicator* host, const Plan& plan, Live* parent,
                                              const std::atomic<bool>* cancel) {
  const std::shared_ptr<Live> live = NewLive(cancel);
  Configuration configuration = NonBlocking();
  const Status formed = plan.way == Plan::Way::kGrow ? Grow(host, parent, live.get())
                                                     : live->Shrink(parent, plan.excluded, &configuration);
  std::vector<uint8_t> all_formed(static_cast<size_t>(host->world()));
  all_formed[static_cast<size_t>(host->rank())] = formed.ok() ? 1 : 0;
  const bool hopeless = !formed.ok() && (formed.error().code == Code::kGone || *cancel);
  const Status agreed = hopeless ? formed : host->AllGather(std::as_writable_bytes(std::span(all_formed)));
  if (agreed.ok() && std::ranges::count(all_formed, 0) == 0) return live;
  live->Release(false);
  RM_TRY(agreed);
  log::Warn(
      "NCCL could not make a communicator from the one before at {} of {} members; all make a new one{}",
      std::ranges::count(all_formed, 0), host->world(), formed.ok() ? "" : ": " + formed.error().message);
  growing_failed_ = growing_failed_ || plan.way == Plan::Way::kGrow;
  return std::shared_ptr<Live>();
}

Status Domain::Grow(Communicator* host, Live* parent, Live* live) {
  RM_ASSIGN(const UniqueId id, Invite(host, [&](UniqueId* made) { return live->AskForId(parent, made); }));
  Configuration configuration = NonBlocking();
  if (parent != nullptr)
    return live->Grow(parent, host->world(), host->rank() == 0 ? &id : nullptr, &configuration);
  return live->Form([&](Handle* handle) {
    return api_.grow(nullptr, host->world(), &id, host->rank(), handle, &configuration);
  });
}

std::shared_ptr<Live> Domain::NewLive(const std::atomic<bool>* cancel) {
  auto live = std::make_shared<Live>(&api_, &options_.live, cancel);
  std::shared_ptr<Live> last = live;
  {
    const std::lock_guard lock(mutex_);
    live_.swap(last);
  }
  return live;
}

// Rank 0 makes the id.
Result<UniqueId> Domain::Invite(Communicator* host, const std::function<int(UniqueId*)>& make) {
  Invitation invitation;
  if (host->rank() == 0) invitation.answer = make(&invitation.id);
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
