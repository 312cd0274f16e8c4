// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/ucx/transport.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ringmaster::fabric::ucx {

UcxTransport::UcxTransport(Domain& domain, uint64_t generation, int rank, size_t world)
    : domain_(domain),
      tcp_health_(domain.worker().Sockets()),
      generation_(generation),
      rank_(rank),
      endpoints_(world),
      channels_(world),
      waited_(world),
      newer_(world),
      stall_(rank, static_cast<int>(world), domain.timeout()) {
  domain_.Attach(this);
}

UcxTransport::~UcxTransport() { domain_.Detach(); }

Header UcxTransport::MakeHeader(Kind kind) const { return {generation_, 0, 0, 0, rank_, kind, 0}; }

void UcxTransport::Pump(int peer) {
  Channel& channel = channels_[peer];
  while (const auto next = channel.Next()) {
    Header header = MakeHeader(Kind::kData);
    header.sequence = next->sequence;
    header.operation = next->tag.operation.number;
    header.call = next->tag.operation.call;
    header.bytes = next->tag.operation.bytes;
    header.step = next->tag.step;
    header.delivered = channel.TakeCredit();
    endpoints_[peer]->Send(header, next->data);
  }
  if (!channel.CreditDue()) return;
  Header header = MakeHeader(Kind::kCredit);
  header.delivered = channel.TakeCredit();
  endpoints_[peer]->Send(header, {});
}

Status UcxTransport::Send(int peer, Tag tag, std::span<const std::byte> data) {
  RM_TRY(Check());
  channels_[peer].Queue(tag, data);
  Pump(peer);
  return Ok();
}

Status UcxTransport::Post(int peer, Tag tag, const PostedReceive& receive) {
  RM_TRY(Check());
  if (auto status = channels_[peer].Post(tag, receive); !status.ok()) return Fail(status.error());
  Pump(peer);  // a buffered message was delivered: the peer may wait for that credit
  return Ok();
}

// Makes progress until `done`, which depends on `peer`.
template <class Done>
Status UcxTransport::WaitUntil(int peer, const Done& done) {
  Time idle_since = kNever;
  bool waiting = false;
  while (!done()) {
    RM_TRY(Check());
    RM_TRY(CheckPeer(peer));
    domain_.Step(idle_since);
    for (int q = 0; q < world(); ++q)
      if (q != rank_) Pump(q);
    if (idle_since == kNever || done()) continue;
    if (!std::exchange(waiting, true)) stall_.Begin(idle_since);
    RM_TRY(CheckStall());
  }
  return Check();
}

Status UcxTransport::CheckStall() {
  const Time now = Now();
  if (stall_.AnnouncementDue(now)) {
    domain_.ShowWait();
    Header header = MakeHeader(Kind::kWaiting);
    header.sequence = stall_.wait();
    for (Endpoint* endpoint : endpoints_)
      if (endpoint != nullptr) endpoint->Send(header, {});
    // The announcements keep data on every connection, so that a broken one shows.
    if (const std::string address =
            tcp_health_.FindUnacknowledged(domain_.worker().Sockets(), domain_.timeout());
        !address.empty())
      return Fail(
          {Code::kDeadlineExceeded,
           fmt::format("{} acknowledges no data for {:.1f} s: is the network between the workers broken?",
                       address, ToSeconds(domain_.timeout()))});
  }
  if (!stall_.Stalled(now, domain_.last_progress())) return Ok();
  return Fail({Code::kDeadlineExceeded, fmt::format("all members waited for {:.1f} s without a message",
                                                    ToSeconds(domain_.timeout()))});
}

Status UcxTransport::Wait(int peer) {
  RM_TRY(WaitUntil(peer, [&] { return channels_[peer].delivered() > waited_[peer]; }));
  ++waited_[peer];
  return Ok();
}

Status UcxTransport::WaitForSends(int peer, uint64_t behind) {
  const Channel& channel = channels_[peer];
  const uint64_t target = channel.queued() - std::min(behind, channel.queued());
  return WaitUntil(peer, [&] { return channel.sent() >= target; });  // what is sent is copied
}

Status UcxTransport::Flush() {
  for (int q = 0; q < world(); ++q) {
    if (q == rank_) continue;
    Pump(q);
    RM_TRY(WaitUntil(q, [&] { return channels_[q].drained() && endpoints_[q]->Flushed(); }));
  }
  return Ok();
}

Status UcxTransport::Check() {
  if (failure_) return *failure_;
  if (pending_error_) return Fail(*pending_error_);
  if (domain_.aborted() >= generation_)
    return Fail({Code::kCancelled, fmt::format("generation {} was aborted", generation_)});
  return Ok();
}

// Check only a peer that the caller depends on: any other may leave when it has done its part.
Status UcxTransport::CheckPeer(int peer) {
  if (newer_[peer] != 0)
    return Fail({Code::kCancelled, fmt::format("generation {} is over: rank {} has joined generation {}",
                                               generation_, peer, newer_[peer])});
  if (!endpoints_[peer]->failed()) return Ok();
  return Fail(endpoints_[peer]->failure().ErrorOf(peer));
}

Error UcxTransport::Fail(Error error) {
  if (failure_) return *failure_;
  failure_ = error;
  // Peers may be waiting for messages that will never be sent.
  for (Endpoint* endpoint : endpoints_)
    if (endpoint != nullptr) endpoint->Send(MakeHeader(Kind::kStop), {});
  domain_.Drain();
  return error;
}

void UcxTransport::OnNewerGeneration(const Endpoint* endpoint, uint64_t generation) {
  for (int q = 0; q < world(); ++q)
    if (endpoints_[q] != nullptr && endpoints_[q] == endpoint) newer_[q] = generation;
}

void UcxTransport::OnMessage(const Header& header, std::span<const std::byte> data) {
  if (failure_ || pending_error_) return;
  if (header.kind == Kind::kStop) {
    pending_error_ =
        Error{Code::kCancelled, header.rank < 0
                                    ? fmt::format("generation {} is over", generation_)
                                    : fmt::format("rank {} gave up generation {}", header.rank, generation_)};
    return;
  }
  if (header.rank < 0 || header.rank >= world() || header.rank == rank_) return;
  switch (header.kind) {
    case Kind::kData:
      channels_[header.rank].OnCredit(header.delivered);
      if (auto status = channels_[header.rank].OnMessage(
              header.sequence, {{header.operation, header.call, header.bytes}, header.step}, data);
          !status.ok())
        pending_error_ = status.error().In(fmt::format("rank {}", header.rank));
      break;
    case Kind::kCredit:
      channels_[header.rank].OnCredit(header.delivered);
      break;
    case Kind::kWaiting:
      stall_.Heard(header.rank, header.sequence, Now());
      break;
    case Kind::kMarker:
    case Kind::kStop:
    case Kind::kHello:
    case Kind::kWelcome:
    case Kind::kExpose:
    case Kind::kSend:
    case Kind::kAcknowledge:
      break;
  }
}

}  // namespace ringmaster::fabric::ucx
