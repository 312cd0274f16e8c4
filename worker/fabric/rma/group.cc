// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/rma/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace ringmaster::fabric::rma {
namespace {

constexpr size_t kSmallProbe = 4;
constexpr size_t kLargeProbe = 1 << 20;
constexpr auto kGrace = milliseconds(100);
constexpr auto kSleep = milliseconds(10);
constexpr auto kSpin = std::chrono::microseconds(50);  // idle time before a sleep

}  // namespace

std::optional<size_t> Memory::Find(std::span<const std::byte> data) const {
  for (size_t i = 0; i < regions.size(); ++i) {
    const std::span<std::byte> region = regions[i].memory();
    if (data.data() >= region.data() && data.data() + data.size() <= region.data() + region.size()) return i;
  }
  return std::nullopt;
}

Group::Group(const Memory* memory, const Options& options)
    : memory_(memory),
      options_(options),
      stall_(options.rank, options.world, options.timeout),
      peers_(static_cast<size_t>(options.world)) {}

Group::~Group() {
  // End gets before the keys they use, and connections before the worker.
  for (Peer& peer : peers_)
    if (peer.endpoint != nullptr) peer.endpoint->CancelGets();
  for (Peer& peer : peers_) {
    peer.keys.clear();
    peer.endpoint.reset();
  }
}

Result<std::unique_ptr<Group>> Group::Create(const Memory* memory, const Options& options) {
  auto group = std::unique_ptr<Group>(new Group(memory, options));
  Group* const self = group.get();
  RM_ASSIGN(group->worker_, ucx::Worker::Create(*memory->context, [self](const ucx::Header& header,
                                                                         std::span<const std::byte> data) {
              self->OnMessage(header, data);
            }));
  return group;
}

Status Group::Connect(std::vector<PeerInfo> infos) {
  last_progress_ = Now();
  for (int q = 0; q < world(); ++q) {
    Peer& peer = peers_[static_cast<size_t>(q)];
    peer.info = std::move(infos[static_cast<size_t>(q)]);
    if (q == rank()) continue;
    RM_ASSIGN(peer.endpoint, worker_->Connect(peer.info.worker));
  }
  return Ok();
}

void Group::OnMessage(const ucx::Header& header, std::span<const std::byte> data) {
  if (failure_ || pending_error_) return;
  DataLocation location;
  const bool valid = header.generation == generation() && header.rank >= 0 && header.rank < world() &&
                     header.rank != rank() && data.size() == sizeof location;
  if (!valid) {
    pending_error_ = Error{Code::kInternal, "an invalid message"};
    return;
  }
  std::memcpy(&location, data.data(), sizeof location);
  Peer& peer = peers_[static_cast<size_t>(header.rank)];
  switch (header.kind) {
    case ucx::Kind::kExpose:
      peer.exposures = header.sequence;
      peer.exposed[header.sequence % 2] = location;
      peer.operations[header.sequence % 2] = {header.operation, header.call, location.bytes};
      return;
    case ucx::Kind::kSend:
      peer.sends_announced = header.sequence;
      peer.send_location = location;
      return;
    case ucx::Kind::kAcknowledge:
      peer.sends_acknowledged = header.sequence;
      return;
    case ucx::Kind::kWaiting:
      stall_.Heard(header.rank, header.sequence, Now());
      return;
    case ucx::Kind::kStop:
      pending_error_ =
          Error{Code::kCancelled, fmt::format("rank {} gave up generation {}", header.rank, generation())};
      return;
    default:
      pending_error_ =
          Error{Code::kInternal, fmt::format("rank {} sent a message of an unexpected kind", header.rank)};
  }
}

Result<Group::DataLocation> Group::Locate(std::span<const std::byte> data) const {
  if (data.empty()) return DataLocation{};
  const std::optional<size_t> region = memory_->Find(data);
  if (!region) return Error{Code::kInternal, "data is not in registered memory"};
  return DataLocation{
      .region = static_cast<uint32_t>(*region),
      .empty = 0,
      .offset = static_cast<uint64_t>(data.data() - memory_->regions[*region].memory().data()),
      .bytes = data.size()};
}

void Group::SendControl(Peer& peer, ucx::Kind kind, uint64_t sequence, const DataLocation& location,
                        const Operation& operation) {
  ucx::Header header = {generation(), sequence, operation.number, 0, rank(), kind, 0};
  header.call = operation.call;
  peer.endpoint->Send(header, std::as_bytes(std::span(&location, 1)));
}

// A peer that fails when nothing depends on it any more has done its part and left.
Status Group::WaitUntil(const std::function<bool()>& done, const std::function<bool(int)>& needs) {
  Time idle_since = kNever;
  bool waiting = false;
  while (true) {
    RM_TRY(Check());
    if (options_.cancel != nullptr && options_.cancel->load(std::memory_order_acquire))
      return Fail({Code::kCancelled, fmt::format("generation {} was aborted", generation())});
    if (pending_error_) return Fail(*pending_error_);
    if (done()) return Ok();
    for (int q = 0; q < world(); ++q) {
      if (q == rank() || !needs(q)) continue;
      const ucx::Endpoint& endpoint = *peers_[static_cast<size_t>(q)].endpoint;
      if (endpoint.failed()) return Fail(endpoint.failure().ErrorOf(q));
    }
    const bool busy = worker_->Progress();
    const Time now = Now();
    if (worker_->messages() != messages_) {
      messages_ = worker_->messages();
      last_progress_ = now;
    }
    if (busy) {
      idle_since = kNever;
      continue;
    }
    if (idle_since == kNever) idle_since = now;
    if (now - idle_since < kSpin) continue;
    if (done()) return Ok();
    if (!std::exchange(waiting, true)) stall_.Begin(idle_since);
    RM_TRY(CheckStall(now));
    worker_->Sleep(kSleep);
  }
}

Status Group::CheckStall(Time now) {
  if (stall_.AnnouncementDue(now)) {
    if (options_.on_wait) options_.on_wait();
    for (Peer& peer : peers_)
      if (peer.endpoint != nullptr) SendControl(peer, ucx::Kind::kWaiting, stall_.wait(), {});
    if (const std::string address = tcp_health_.FindUnacknowledged(worker_->Sockets(), options_.timeout);
        !address.empty())
      return Fail(
          {Code::kDeadlineExceeded,
           fmt::format("{} acknowledges no data for {:.1f} s: is the network between the workers broken?",
                       address, ToSeconds(options_.timeout))});
  }
  if (!stall_.Stalled(now, last_progress_)) return Ok();
  return Fail({Code::kDeadlineExceeded, fmt::format("all members waited for {:.1f} s without a message",
                                                    ToSeconds(options_.timeout))});
}

// A member that needs nothing more may make no progress for a while; its messages must have left before.
bool Group::AllSent() const {
  return std::ranges::all_of(peers_, [](const Peer& peer) {
    return peer.endpoint == nullptr || peer.endpoint->failed() || peer.endpoint->in_flight() == 0;
  });
}

Status Group::Expose(std::span<const std::byte> own, const Operation& operation) {
  RM_TRY(Check());
  const Result<DataLocation> location = Locate(own);
  if (!location.ok()) return Fail(location.error());
  ++exposures_;
  for (Peer& peer : peers_)
    if (peer.endpoint != nullptr) SendControl(peer, ucx::Kind::kExpose, exposures_, *location, operation);
  const auto has_exposed = [this](const Peer& peer) {
    return peer.endpoint == nullptr || peer.exposures >= exposures_;
  };
  RM_TRY(WaitUntil([&] { return std::ranges::all_of(peers_, has_exposed) && AllSent(); },
                   [&](int q) { return !has_exposed(peers_[static_cast<size_t>(q)]); }));
  for (int q = 0; q < world(); ++q) {
    Peer& peer = peers_[static_cast<size_t>(q)];
    peer.current = peer.exposed[exposures_ % 2];
    const Operation here = {operation.number, operation.call, own.size()};
    const Operation& there = peer.operations[exposures_ % 2];
    if (peer.endpoint != nullptr && here != there)
      return Fail({Code::kInternal, fmt::format("the ranks call different operations: {} here, {} at rank {}",
                                                Describe(here), Describe(there), q)});
  }
  return Ok();
}

Result<const ucx::RemoteKey*> Group::RemoteKeyOf(Peer& peer, uint32_t region) {
  const auto known = peer.keys.find(region);
  if (known != peer.keys.end()) return &known->second;
  RM_ASSIGN(ucx::RemoteKey key, peer.endpoint->Unpack(peer.info.regions[region].key));
  return &peer.keys.emplace(region, std::move(key)).first->second;
}

Status Group::Get(int q, size_t offset, std::span<std::byte> to) {
  RM_TRY(Check());
  if (to.empty()) return Ok();
  Peer& peer = peers_[static_cast<size_t>(q)];
  if (peer.endpoint->failed()) return Fail(peer.endpoint->failure().ErrorOf(q));
  const DataLocation& location = peer.current;
  const bool valid = location.empty == 0 && location.region < peer.info.regions.size() &&
                     location.offset + location.bytes <= peer.info.regions[location.region].bytes &&
                     offset + to.size() <= location.bytes;
  if (!valid)
    return Fail({Code::kInternal, fmt::format("rank {} does not expose {} bytes", q, offset + to.size())});
  const Result<const ucx::RemoteKey*> key = RemoteKeyOf(peer, location.region);
  if (!key.ok()) return Fail(key.error());
  const std::optional<size_t> local = memory_->Find(to);
  peer.endpoint->Get(**key, peer.info.regions[location.region].address + location.offset + offset, to,
                     local ? memory_->regions[*local].handle() : nullptr, memory_->type);
  return Ok();
}

Status Group::WaitForGets() {
  const auto gets_in_flight = [this](int q) {
    const Peer& peer = peers_[static_cast<size_t>(q)];
    return peer.endpoint != nullptr && peer.endpoint->gets_in_flight() > 0;
  };
  RM_TRY(WaitUntil(
      [&] {
        for (int q = 0; q < world(); ++q)
          if (gets_in_flight(q)) return false;
        return true;
      },
      gets_in_flight));
  for (int q = 0; q < world(); ++q) {
    const Peer& peer = peers_[static_cast<size_t>(q)];
    if (peer.endpoint != nullptr && peer.endpoint->get_failed())
      return Fail(peer.endpoint->get_failure().ErrorOf(q));
  }
  return Ok();
}

Result<std::optional<int>> Group::ProbePeers(std::span<std::byte> scratch) {
  RM_TRY(Expose(scratch, {}));
  std::optional<int> unread;
  for (int q = 0; q < world(); ++q) {
    Peer& peer = peers_[static_cast<size_t>(q)];
    if (q == rank() || unread) continue;
    for (const size_t bytes : {kSmallProbe, kLargeProbe}) {
      if (peer.endpoint->get_failed()) break;
      RM_TRY(Get(q, 0, scratch.first(std::min(bytes, scratch.size()))));
      RM_TRY(WaitUntil([&] { return peer.endpoint->gets_in_flight() == 0; }, [](int) { return false; }));
    }
    if (peer.endpoint->get_failed()) unread = q;
  }
  RM_TRY(Expose({}, {}));
  return unread;
}

Status Group::Send(int q, std::span<const std::byte> data) {
  RM_TRY(Check());
  const Result<DataLocation> location = Locate(data);
  if (!location.ok()) return Fail(location.error());
  Peer& peer = peers_[static_cast<size_t>(q)];
  SendControl(peer, ucx::Kind::kSend, ++peer.sent, *location);
  return WaitUntil([&] { return peer.sends_acknowledged == peer.sent; },
                   [&](int needed) { return needed == q; });
}

Status Group::AwaitSend(int q, size_t bytes) {
  Peer& peer = peers_[static_cast<size_t>(q)];
  RM_TRY(WaitUntil([&] { return peer.sends_announced > peer.acknowledged; },
                   [&](int needed) { return needed == q; }));
  peer.current = peer.send_location;
  if (peer.current.bytes == bytes) return Ok();
  return Fail({Code::kInternal, fmt::format("rank {} sends {} bytes, not {}", q, peer.current.bytes, bytes)});
}

Status Group::Acknowledge(int q) {
  Peer& peer = peers_[static_cast<size_t>(q)];
  SendControl(peer, ucx::Kind::kAcknowledge, ++peer.acknowledged, {});
  return WaitUntil([&] { return peer.endpoint->in_flight() == 0; }, [&](int needed) { return needed == q; });
}

Status Group::Check() const {
  if (failure_) return *failure_;
  return Ok();
}

Error Group::Fail(Error error) {
  if (failure_) return *failure_;
  failure_ = error;
  // Peers may be waiting for an exposure that will never come.
  for (Peer& peer : peers_)
    if (peer.endpoint != nullptr) SendControl(peer, ucx::Kind::kStop, 0, {});
  // Gets from live peers complete on their own within moments, which is safer than cancelling them.
  const auto has_gets = [](const Peer& peer) {
    return peer.endpoint != nullptr && peer.endpoint->gets_in_flight() > 0;
  };
  const Time deadline = Now() + kGrace;
  while (std::ranges::any_of(peers_, has_gets) && Now() < deadline) worker_->Progress();
  for (Peer& peer : peers_)
    if (peer.endpoint != nullptr) peer.endpoint->CancelGets();
  return error;
}

}  // namespace ringmaster::fabric::rma
