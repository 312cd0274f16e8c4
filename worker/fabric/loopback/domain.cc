// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/loopback/domain.h"

#include "base/rng.h"
#include "worker/fabric/loopback/transport.h"

namespace ringmaster::fabric::loopback {

Domain::Domain(const NetworkOptions& options) : options_(options), ranks_(options.world) {
  for (Rank& rank : ranks_) {
    rank.channels.resize(options.world);
    rank.waited.resize(options.world);
  }
}

std::unique_ptr<Transport> Domain::Connect(int rank) {
  return std::make_unique<LoopbackTransport>(*this, rank);
}

void Domain::Abort() {
  const MutexLock lock(mutex_);
  aborted_ = true;
  for (Rank& rank : ranks_) Wake(rank);
}

uint64_t Domain::messages(int rank) {
  const MutexLock lock(mutex_);
  return ranks_[rank].messages;
}

Status Domain::Push(int from, Event event) {
  Rank& sender = ranks_[from];
  if (sender.ended) return Error{Code::kUnavailable, "this rank has ended"};
  const uint64_t number = sender.messages;
  const uint64_t delay =
      options_.max_delay == 0 ? 0 : KeyedRandom(options_.seed, from, number) % (options_.max_delay + 1);
  if (options_.victim == from && number == options_.end_at) {
    sender.ended = true;
    sender.left = true;
    for (int q = 0; q < options_.world && options_.announced; ++q)
      if (q != from)
        events_.emplace(std::tuple(now_ + delay, from, number + q),
                        Event{EventKind::kEnd, from, q, 0, {}, {}});
    return Error{Code::kUnavailable, "this rank has ended"};
  }
  ++sender.messages;
  events_.emplace(std::tuple(now_ + delay, from, number), std::move(event));
  return Ok();
}

Status Domain::Pump(int rank) {
  for (int q = 0; q < options_.world; ++q) {
    Channel& channel = ranks_[rank].channels[q];
    while (const auto next = channel.Next())
      RM_TRY(Push(
          rank,
          {EventKind::kMessage, rank, q, next->sequence, next->tag, {next->data.begin(), next->data.end()}}));
    if (channel.CreditDue()) RM_TRY(Push(rank, {EventKind::kCredit, rank, q, channel.TakeCredit(), {}, {}}));
  }
  return Ok();
}

void Domain::DeliverEvent(Event event) {
  Rank& receiver = ranks_[event.to];
  if (receiver.left || receiver.failure) return;
  Channel& channel = receiver.channels[event.from];
  switch (event.kind) {
    case EventKind::kMessage:
      if (auto status = channel.OnMessage(event.sequence, event.tag, event.bytes); !status.ok())
        receiver.failure = status.error();
      break;
    case EventKind::kCredit:
      channel.OnCredit(event.sequence);
      break;
    case EventKind::kEnd:
      receiver.failure = Error{Code::kUnavailable, fmt::format("rank {} has ended", event.from)};
      break;
  }
}

void Domain::AdvanceIfAllWait() {
  for (const Rank& rank : ranks_)
    if (!rank.left && !rank.waiting) return;
  if (events_.empty()) {
    for (Rank& rank : ranks_) {
      if (!rank.waiting) continue;
      if (!rank.failure)
        rank.failure = Error{Code::kDeadlineExceeded, "all ranks wait and no message is in flight"};
      Wake(rank);
    }
    return;
  }
  auto next = events_.extract(events_.begin());
  now_ = std::get<0>(next.key());
  const int receiver = next.mapped().to;
  DeliverEvent(std::move(next.mapped()));
  if (ranks_[receiver].waiting) return Wake(ranks_[receiver]);
  AdvanceIfAllWait();  // the receiver has left
}

void Domain::Wake(Rank& rank) {
  rank.waiting = false;
  rank.changed.NotifyOne();
}

}  // namespace ringmaster::fabric::loopback
