// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/ucx/domain.h"

#include <algorithm>
#include <set>
#include <utility>

#include "worker/fabric/ucx/transport.h"

namespace ringmaster::fabric::ucx {
namespace {

// An endpoint may fail during setup because the peer closed an older endpoint to this process at that time.
constexpr int kAttempts = 4;
constexpr auto kSleep = milliseconds(10);

}  // namespace

Result<std::unique_ptr<Domain>> Domain::Create(const std::string& uuid, Duration timeout,
                                               std::function<void()> on_wait) {
  auto domain = std::unique_ptr<Domain>(new Domain(uuid, timeout, std::move(on_wait)));
  Domain* const self = domain.get();
  RM_ASSIGN(domain->context_, Context::Create(UCP_FEATURE_AM | UCP_FEATURE_WAKEUP));
  RM_ASSIGN(domain->worker_,
            Worker::Create(*domain->context_, [self](const Header& header, std::span<const std::byte> data) {
              self->OnMessage(header, data);
            }));
  return domain;
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
  CHECK(transport_ == nullptr, "the older communicator still exists");
  if (generation <= generation_)
    return Error{Code::kInvalid, fmt::format("generation {} is not newer than the last", generation)};
  if (aborted() >= generation)
    return Error{Code::kCancelled, fmt::format("generation {} was aborted", generation)};

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
  std::vector<int> attempts(members.size());
  const Time begin = Now();
  Time idle_since = kNever;
  while (true) {
    bool all = true;
    for (size_t q = 0; q < members.size(); ++q) {
      if (q == static_cast<size_t>(transport.rank())) continue;
      Peer& peer = peers_[members[q].uuid];
      peer.member = true;
      if (attempts[q] == 0 || peer.endpoint->failed()) {
        if (attempts[q]++ == kAttempts) return Error{Code::kUnavailable, fmt::format("rank {} is gone", q)};
        transport.SetEndpoint(static_cast<int>(q), nullptr);
        const Status sent = SendHello(peer, members[q], generation_, transport.rank());
        if (!sent.ok() && sent.error().code == Code::kNotFound) {
          unreachable_.push_back(static_cast<int32_t>(q));
          continue;
        }
        RM_TRY(sent);
        transport.SetEndpoint(static_cast<int>(q), peer.endpoint.get());
      }
      if (peer.hello > generation_)
        return Error{Code::kCancelled, fmt::format("rank {} has joined a newer generation", q)};
      all = all && peer.hello == generation_ && peer.welcome == generation_ && peer.welcomed == generation_ &&
            peer.endpoint->in_flight() == 0;
    }
    if (!unreachable_.empty())
      return Error{Code::kUnavailable,
                   fmt::format("no transport leads to rank {}: UCX finds none that both sides may use",
                               fmt::join(unreachable_, ", "))};
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
