// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/rma/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ringmaster::fabric::rma {
namespace {

constexpr size_t kLittle = 4;
constexpr size_t kMuch = 1 << 20;
constexpr auto kGrace = milliseconds(100);
constexpr auto kNap = milliseconds(10);
constexpr auto kPatience = std::chrono::microseconds(50);  // idle time before a sleep

}  // namespace

std::optional<size_t> Memory::Find(std::span<const std::byte> data) const {
  for (size_t i = 0; i < regions.size(); ++i) {
    const std::span<std::byte> region = regions[i].memory();
    if (data.data() >= region.data() && data.data() + data.size() <= region.data() + region.size()) return i;
  }
  return std::nullopt;
}

Group::Group(const Memory* memory, const Options& options)
    : memory_(memory), options_(options), peers_(static_cast<size_t>(options.world)) {}

Group::~Group() {
  // Pulls before the keys they use, and connections before the worker.
  for (Peer& peer : peers_)
    if (peer.endpoint != nullptr) peer.endpoint->Recall();
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

Status Group::Reach(std::vector<Offer> offers) {
  moved_ = Now();
  for (int q = 0; q < world(); ++q) {
    Peer& peer = peers_[static_cast<size_t>(q)];
    peer.offer = std::move(offers[static_cast<size_t>(q)]);
    if (q == rank()) continue;
    RM_ASSIGN(peer.endpoint, worker_->Connect(peer.offer.worker));
  }
  return Ok();
}

void Group::OnMessage(const ucx::Header& header, std::span<const std::byte> data) {
  if (failure_ || news_) return;
  Place place;
  const bool sound = header.generation == generation() && header.rank >= 0 && header.rank < world() &&
                     header.rank != rank() && data.size() == sizeof place;
  if (!sound) {
    news_ = Error{Code::kInternal, "a message that no member sends"};
    return;
  }
  std::memcpy(&place, data.data(), sizeof place);
  Peer& peer = peers_[static_cast<size_t>(header.rank)];
  switch (header.kind) {
    case ucx::Kind::kArrived:
      peer.arrived = header.sequence;
      peer.shown[header.sequence % 2] = place;
      return;
    case ucx::Kind::kOffer:
      peer.offered = header.sequence;
      peer.offer_place = place;
      return;
    case ucx::Kind::kTaken:
      peer.taken = header.sequence;
      return;
    case ucx::Kind::kStop:
      news_ =
          Error{Code::kCancelled, fmt::format("rank {} gave up generation {}", header.rank, generation())};
      return;
    default:
      news_ = Error{Code::kInternal, fmt::format("rank {} sent a message of another kind", header.rank)};
  }
}

Result<Group::Place> Group::PlaceOf(std::span<const std::byte> data) const {
  if (data.empty()) return Place{};
  const std::optional<size_t> region = memory_->Find(data);
  if (!region) return Error{Code::kInternal, "data outside of all registered memory"};
  return Place{.region = static_cast<uint32_t>(*region),
               .nowhere = 0,
               .offset = static_cast<uint64_t>(data.data() - memory_->regions[*region].memory().data()),
               .bytes = data.size()};
}

void Group::Tell(Peer& peer, ucx::Kind kind, uint64_t sequence, const Place& place) {
  peer.endpoint->Send({generation(), sequence, 0, 0, rank(), kind, 0}, std::as_bytes(std::span(&place, 1)));
}

// A peer that fails later than we need it has done its part and left.
Status Group::Until(const std::function<bool()>& done, const std::function<bool(int)>& needs) {
  const Time begin = Now();
  Time idle_since = kNever;
  while (true) {
    RM_TRY(Check());
    if (options_.cancel != nullptr && options_.cancel->load(std::memory_order_acquire))
      return Fail({Code::kCancelled, fmt::format("generation {} was aborted", generation())});
    if (news_) return Fail(*news_);
    if (done()) return Ok();
    for (int q = 0; q < world(); ++q) {
      if (q == rank() || !needs(q)) continue;
      if (peers_[static_cast<size_t>(q)].endpoint->failed())
        return Fail({Code::kUnavailable, fmt::format("rank {} is gone", q)});
    }
    const bool busy = worker_->Progress();
    const Time now = Now();
    if (worker_->messages() != messages_) {
      messages_ = worker_->messages();
      moved_ = now;
    }
    if (busy) {
      idle_since = kNever;
      continue;
    }
    if (idle_since == kNever) idle_since = now;
    if (now - idle_since < kPatience) continue;
    if (now - std::max(begin, moved_) > options_.timeout && !done())
      return Fail({Code::kDeadlineExceeded,
                   fmt::format("members made no progress in {:.1f} s", ToSeconds(options_.timeout))});
    worker_->Sleep(kNap);
  }
}

// Who has got all it waits for may go and make no progress for a while; what it has told must be on its way.
bool Group::Sent() const {
  return std::ranges::all_of(peers_, [](const Peer& peer) {
    return peer.endpoint == nullptr || peer.endpoint->failed() || peer.endpoint->in_flight() == 0;
  });
}

Status Group::Arrive(std::span<const std::byte> own) {
  RM_TRY(Check());
  const Result<Place> place = PlaceOf(own);
  if (!place.ok()) return Fail(place.error());
  ++arrived_;
  for (Peer& peer : peers_)
    if (peer.endpoint != nullptr) Tell(peer, ucx::Kind::kArrived, arrived_, *place);
  const auto here = [this](const Peer& peer) { return peer.endpoint == nullptr || peer.arrived >= arrived_; };
  RM_TRY(Until([&] { return std::ranges::all_of(peers_, here) && Sent(); },
               [&](int q) { return !here(peers_[static_cast<size_t>(q)]); }));
  for (Peer& peer : peers_) {
    peer.current = peer.shown[arrived_ % 2];
    if (peer.endpoint != nullptr && peer.current.bytes != own.size())
      return Fail({Code::kInternal, fmt::format("a member came with {} bytes, this one with {}",
                                                peer.current.bytes, own.size())});
  }
  return Ok();
}

Result<const ucx::RemoteKey*> Group::KeyOf(Peer& peer, uint32_t region) {
  const auto known = peer.keys.find(region);
  if (known != peer.keys.end()) return &known->second;
  RM_ASSIGN(ucx::RemoteKey key, peer.endpoint->Unpack(peer.offer.regions[region].key));
  return &peer.keys.emplace(region, std::move(key)).first->second;
}

Status Group::Pull(int q, size_t offset, std::span<std::byte> to) {
  RM_TRY(Check());
  if (to.empty()) return Ok();
  Peer& peer = peers_[static_cast<size_t>(q)];
  if (peer.endpoint->failed()) return Fail({Code::kUnavailable, fmt::format("rank {} is gone", q)});
  const Place& place = peer.current;
  const bool sound = place.nowhere == 0 && place.region < peer.offer.regions.size() &&
                     place.offset + place.bytes <= peer.offer.regions[place.region].bytes &&
                     offset + to.size() <= place.bytes;
  if (!sound) return Fail({Code::kInternal, fmt::format("rank {} shows no {} bytes", q, offset + to.size())});
  const Result<const ucx::RemoteKey*> key = KeyOf(peer, place.region);
  if (!key.ok()) return Fail(key.error());
  const std::optional<size_t> local = memory_->Find(to);
  peer.endpoint->Pull(**key, peer.offer.regions[place.region].address + place.offset + offset, to,
                      local ? memory_->regions[*local].handle() : nullptr, memory_->type);
  return Ok();
}

Status Group::Landed() {
  const auto pulling = [this](int q) {
    const Peer& peer = peers_[static_cast<size_t>(q)];
    return peer.endpoint != nullptr && peer.endpoint->pulling() > 0;
  };
  RM_TRY(Until(
      [&] {
        for (int q = 0; q < world(); ++q)
          if (pulling(q)) return false;
        return true;
      },
      pulling));
  for (int q = 0; q < world(); ++q) {
    const Peer& peer = peers_[static_cast<size_t>(q)];
    if (peer.endpoint != nullptr && peer.endpoint->pull_failed())
      return Fail({Code::kUnavailable, fmt::format("rank {} is gone", q)});
  }
  return Ok();
}

Result<std::optional<int>> Group::Try(std::span<std::byte> scratch) {
  RM_TRY(Arrive(scratch));
  std::optional<int> unread;
  for (int q = 0; q < world(); ++q) {
    Peer& peer = peers_[static_cast<size_t>(q)];
    if (q == rank() || unread) continue;
    for (const size_t bytes : {kLittle, kMuch}) {
      if (peer.endpoint->pull_failed()) break;
      RM_TRY(Pull(q, 0, scratch.first(std::min(bytes, scratch.size()))));
      RM_TRY(Until([&] { return peer.endpoint->pulling() == 0; }, [](int) { return false; }));
    }
    if (peer.endpoint->pull_failed()) unread = q;
  }
  RM_TRY(Arrive({}));
  return unread;
}

Status Group::Offered(int q, std::span<const std::byte> data) {
  RM_TRY(Check());
  const Result<Place> place = PlaceOf(data);
  if (!place.ok()) return Fail(place.error());
  Peer& peer = peers_[static_cast<size_t>(q)];
  Tell(peer, ucx::Kind::kOffer, ++peer.we_offered, *place);
  return Until([&] { return peer.taken == peer.we_offered; }, [&](int needed) { return needed == q; });
}

Status Group::AwaitOffer(int q, size_t bytes) {
  Peer& peer = peers_[static_cast<size_t>(q)];
  RM_TRY(Until([&] { return peer.offered > peer.we_took; }, [&](int needed) { return needed == q; }));
  peer.current = peer.offer_place;
  if (peer.current.bytes == bytes) return Ok();
  return Fail({Code::kInternal, fmt::format("rank {} sends {} bytes, not {}", q, peer.current.bytes, bytes)});
}

Status Group::Take(int q) {
  Peer& peer = peers_[static_cast<size_t>(q)];
  Tell(peer, ucx::Kind::kTaken, ++peer.we_took, {});
  return Until([&] { return peer.endpoint->in_flight() == 0; }, [&](int needed) { return needed == q; });
}

Status Group::Check() const {
  if (failure_) return *failure_;
  return Ok();
}

Error Group::Fail(Error error) {
  if (failure_) return *failure_;
  failure_ = error;
  // Others may be waiting for what we shall never show.
  for (Peer& peer : peers_)
    if (peer.endpoint != nullptr) Tell(peer, ucx::Kind::kStop, 0, {});
  // Reads of who lives end by themselves in a moment; it is better not to need what UCX does to end them.
  const auto reading = [](const Peer& peer) {
    return peer.endpoint != nullptr && peer.endpoint->pulling() > 0;
  };
  const Time deadline = Now() + kGrace;
  while (std::ranges::any_of(peers_, reading) && Now() < deadline) worker_->Progress();
  for (Peer& peer : peers_)
    if (peer.endpoint != nullptr) peer.endpoint->Recall();
  return error;
}

}  // namespace ringmaster::fabric::rma
