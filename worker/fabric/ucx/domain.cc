// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/ucx/domain.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "worker/fabric/ucx/known_faults.h"
#include "worker/fabric/ucx/transport.h"

namespace ringmaster::fabric::ucx {
namespace {

constexpr auto kSleep = milliseconds(10);
// A refused connection or a missing route may be of a moment: the peer closed an older connection to this
// process at that time, or the network plug-in of a node is a second late. What lasts this long is permanent.
constexpr Duration kPatience = seconds(5);
constexpr Duration kFirstPause = milliseconds(1);
constexpr Duration kLongestPause = milliseconds(100);
constexpr auto kLeave = milliseconds(300);  // how long the last messages may take to leave

// The attempts of one Connect to greet one member.
struct Attempts {
  bool greeted = false;
  Time first_failure = kNever;
  Time next{};
  Duration pause = kFirstPause;
  std::optional<Error> error;  // of the last one

  // Returns whether there may be another one.
  bool Fail(Error why, Time now, Duration patience) {
    if (first_failure == kNever) first_failure = now;
    error = std::move(why);
    next = now + pause;
    pause = std::min(pause * 2, kLongestPause);
    return now - first_failure < patience;
  }
};

}  // namespace

Result<std::unique_ptr<Domain>> Domain::Create(const std::string& uuid, Duration timeout,
                                               std::function<void()> on_wait) {
  auto domain = std::unique_ptr<Domain>(new Domain(uuid, timeout, std::move(on_wait)));
  Domain* const self = domain.get();
  KnownFaults faults =
      FindKnownFaults(LibraryMajorMinor(), LibraryVersion(), ReadRdmaPorts(""),
                      [](const std::string& name) -> std::optional<std::string> {
                        const char* const value = std::getenv(name.c_str());
                        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
                      });
  for (const std::string& warning : faults.warnings) log::Warn("{}", warning);
  domain->refusal_ = std::move(faults.refusal);
  RM_ASSIGN(domain->context_, Context::Create(UCP_FEATURE_AM | UCP_FEATURE_WAKEUP));
  RM_ASSIGN(domain->worker_,
            Worker::Create(*domain->context_, [self](const Header& header, std::span<const std::byte> data) {
              self->OnMessage(header, data);
            }));
  return domain;
}

Domain::~Domain() {
  StopDraining();
  // A close discards what has not left. A peer that does not read in time gets the end of the connection.
  Time idle_since = kNever;
  for (const Time deadline = Now() + kLeave; worker_ != nullptr && !Drained() && Now() < deadline;)
    Step(idle_since);
}

bool Domain::Drained() {
  bool drained = true;
  for (auto& [uuid, peer] : peers_)
    if (peer.endpoint != nullptr && !peer.endpoint->Flushed()) drained = false;
  return drained;
}

void Domain::Detach() {
  attached_ = nullptr;
  Drain();
}

void Domain::Drain() {
  if (drainer_.joinable()) return;  // since the Transport has failed
  transport_ = nullptr;
  if (Drained()) return;
  stop_draining_ = false;
  drainer_ = std::thread([this] {
    Time idle_since = kNever;
    while (!stop_draining_.load(std::memory_order_acquire) && !Drained()) Step(idle_since);
  });
}

void Domain::StopDraining() {
  if (!drainer_.joinable()) return;
  stop_draining_.store(true, std::memory_order_release);
  worker_->Signal();
  drainer_.join();
}

void Domain::Abort(uint64_t generation) {
  uint64_t current = aborted_.load(std::memory_order_relaxed);
  while (current < generation && !aborted_.compare_exchange_weak(current, generation)) {
  }
  worker_->Signal();
}

void Domain::Step(Time& idle_since) {
  const bool busy = worker_->Progress();
  if (welcomes_due_) SendWelcomes();
  if (worker_->messages() != messages_) {
    messages_ = worker_->messages();
    last_progress_ = Now();
  }
  if (busy) {
    idle_since = kNever;
    return;
  }
  const Time now = Now();
  if (idle_since == kNever) idle_since = now;
  if (now - idle_since >= spin_) worker_->Sleep(kSleep);
}

// A hello may be lost with a connection that the peer has closed without our knowledge yet; so it counts only
// once the peer has confirmed it. Confirmations are sent between two steps of progress, never within one.
void Domain::SendWelcomes() {
  welcomes_due_ = false;
  for (auto& [uuid, peer] : peers_) {
    if (peer.hello <= peer.welcomed) continue;
    if (peer.endpoint == nullptr || peer.endpoint->failed()) {
      welcomes_due_ = true;
      continue;
    }
    peer.welcomed = peer.hello;
    peer.endpoint->Send({peer.hello, 0, 0, 0, -1, Kind::kWelcome, 0}, std::as_bytes(std::span(uuid_)));
  }
}

void Domain::OnMessage(const Header& header, std::span<const std::byte> data) {
  if (header.kind == Kind::kHello || header.kind == Kind::kWelcome) {
    Peer& peer = peers_[std::string(reinterpret_cast<const char*>(data.data()), data.size())];
    uint64_t& newest = header.kind == Kind::kHello ? peer.hello : peer.welcome;
    newest = std::max(newest, header.generation);
    welcomes_due_ = true;
    if (header.kind == Kind::kHello && transport_ != nullptr && header.generation > generation_)
      transport_->OnNewerGeneration(peer.endpoint.get(), header.generation);
    return;
  }
  // Drop messages of older generations.
  if (transport_ != nullptr && header.generation == generation_) transport_->OnMessage(header, data);
}

// A stopped process that resumes in an old generation learns of its end from this message.
void Domain::SendStop(Peer& peer, uint64_t generation) {
  if (peer.member && peer.endpoint != nullptr)
    peer.endpoint->Send({generation, 0, 0, 0, -1, Kind::kStop, 0}, {});
  peer.member = false;
}

Status Domain::SendHello(Peer& peer, const MemberAddress& member, uint64_t generation, int rank) {
  if (peer.endpoint == nullptr || peer.endpoint->failed()) {
    peer.endpoint.reset();
    peer.welcomed = 0;
    welcomes_due_ = true;
    RM_ASSIGN(peer.endpoint, worker_->Connect(member.ucx));
  }
  peer.endpoint->Send({generation, 0, 0, 0, rank, Kind::kHello, 0}, std::as_bytes(std::span(uuid_)));
  return Ok();
}

Result<std::unique_ptr<Transport>> Domain::Connect(uint64_t generation, int rank,
                                                   const std::vector<MemberAddress>& members) {
  CHECK(attached_ == nullptr, "the older communicator still exists");
  StopDraining();
  if (generation <= generation_)
    return Error{Code::kInvalid, fmt::format("generation {} is not newer than the last", generation)};
  if (aborted() >= generation)
    return Error{Code::kCancelled, fmt::format("generation {} was aborted", generation)};

  if (refusal_ && members.size() > 1) return Error{Code::kForbidden, *refusal_};
  int neighbours = 0;
  std::set<std::string> uuids;
  for (const MemberAddress& member : members) {
    if (member.host_id == members[rank].host_id) ++neighbours;
    if (member.ucx.empty())
      return Error{Code::kInvalid, fmt::format("process {} runs without UCX", member.pid)};
    if (!uuids.insert(member.uuid).second) return Error{Code::kInvalid, "a member is listed twice"};
  }
  spin_ = neighbours <= UsableCpus() ? Duration(std::chrono::microseconds(50)) : Duration(0);
  for (auto& [uuid, peer] : peers_)
    if (!uuids.contains(uuid)) SendStop(peer, generation_);
  // Forget dead peers; keep of unknown ones only a hello for a generation to come.
  std::erase_if(peers_, [&](const auto& item) {
    const auto& [uuid, peer] = item;
    return !uuids.contains(uuid) && (peer.endpoint == nullptr || peer.endpoint->failed()) &&
           peer.hello < generation;
  });
  generation_ = generation;
  unreachable_.clear();
  // Attach before the first hello is sent: a member that has the hellos of all may send data at once.
  auto transport = std::make_unique<UcxTransport>(*this, generation, rank, members.size());
  if (auto met = WaitForMembers(*transport, members); !met.ok()) return transport->Fail(met.error());
  return std::unique_ptr<Transport>(std::move(transport));
}

Status Domain::WaitForMembers(UcxTransport& transport, const std::vector<MemberAddress>& members) {
  const Duration patience = std::min(kPatience, timeout_ / 2);
  std::vector<Attempts> attempts(members.size());
  const Time begin = Now();
  Time idle_since = kNever;
  while (true) {
    bool all = true;
    const Time now = Now();
    for (size_t q = 0; q < members.size(); ++q) {
      if (q == static_cast<size_t>(transport.rank())) continue;
      const auto rank = static_cast<int>(q);
      Attempts& attempt = attempts[q];
      Peer& peer = peers_[members[q].uuid];
      peer.member = true;
      if (peer.hello > generation_)
        return Error{Code::kCancelled, fmt::format("rank {} has joined a newer generation", q)};
      bool may_retry = true;
      if (attempt.greeted && peer.endpoint->failed()) {
        attempt.greeted = false;
        transport.SetEndpoint(rank, nullptr);
        may_retry = attempt.Fail(peer.endpoint->failure().ErrorOf(rank), now, patience);
      }
      if (!attempt.greeted && may_retry && now >= attempt.next) {
        const Status sent = SendHello(peer, members[q], generation_, transport.rank());
        attempt.greeted = sent.ok();
        if (sent.ok()) {
          transport.SetEndpoint(rank, peer.endpoint.get());
        } else {
          may_retry = attempt.Fail(sent.error(), now, patience);
        }
      }
      if (!may_retry && attempt.error->code != Code::kNotFound) return *attempt.error;
      if (!may_retry) {
        for (size_t r = 0; r < members.size(); ++r)
          if (!attempts[r].greeted && attempts[r].error && attempts[r].error->code == Code::kNotFound)
            unreachable_.push_back(static_cast<int32_t>(r));
        return Error{Code::kUnavailable,
                     fmt::format("no transport leads to rank {} for {:.1f} s: UCX finds none that both sides "
                                 "may use, or this host has no route",
                                 fmt::join(unreachable_, ", "), ToSeconds(patience))};
      }
      all = all && attempt.greeted && peer.hello == generation_ && peer.welcome == generation_ &&
            peer.welcomed == generation_ && peer.endpoint->in_flight() == 0;
    }
    if (all) return Ok();
    RM_TRY(transport.Check());
    Step(idle_since);
    // All members connect at the same time: they have just received the same order.
    if (idle_since != kNever && Now() - std::max(begin, last_progress_) > timeout_)
      return Error{Code::kDeadlineExceeded,
                   fmt::format("not all members connected in {:.1f} s", ToSeconds(timeout_))};
  }
}

std::string Domain::Transports() const {
  std::string names;
  for (const auto& [uuid, peer] : peers_) {
    if (!peer.member || peer.endpoint == nullptr) continue;
    const std::string name = peer.endpoint->Transports();
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : "+") + name;
  }
  return names;
}

}  // namespace ringmaster::fabric::ucx
