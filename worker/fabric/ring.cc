// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <functional>

#include "worker/fabric/algorithms.h"
#include "worker/fabric/shares.h"

namespace ringmaster::fabric {
namespace {

constexpr uint32_t kRingAhead = 16;  // receives posted ahead of their messages
constexpr uint32_t kExchangeAhead = 4;
// Shorter segments cost more in messages than they gain in overlap.
constexpr size_t kShortestInRing = 16 << 10;

struct Ring {
  Transport& transport;
  Operation operation;
  Shares shares;

  int world() const { return transport.world(); }
  int next() const { return (transport.rank() + 1) % world(); }
  int previous() const { return (transport.rank() + world() - 1) % world(); }
};

Ring MakeRing(Transport& transport, const Operation& operation, std::span<std::byte> data, size_t share) {
  return {transport, operation, Cut(data, share, transport.segment_bytes(), kShortestInRing)};
}

// The movement that all ring algorithms share. First this rank sends share `first + 1`, which it has. In step
// s it receives share `first - s`, and forwards it in step s + 1. Each segment is forwarded as soon as it is
// delivered.
Status RunRing(const Ring& ring, uint32_t steps, int first,
               const std::function<PostedReceive(uint32_t, std::span<std::byte>)>& receive_for) {
  const auto owner = [&](uint32_t step) {
    const int world = ring.world();
    return ((first - static_cast<int>(step)) % world + world) % world;
  };
  const uint32_t total = steps * ring.shares.segments;
  const auto post = [&](uint32_t k) {
    const uint32_t step = k / ring.shares.segments;
    return ring.transport.Post(ring.previous(), {ring.operation, k},
                               receive_for(step, ring.shares.Segment(owner(step), k % ring.shares.segments)));
  };
  for (uint32_t k = 0; k < std::min(kRingAhead, total); ++k) RM_TRY(post(k));
  const int mine = (first + 1) % ring.world();
  for (uint32_t g = 0; g < ring.shares.segments; ++g)
    RM_TRY(ring.transport.Send(ring.next(), {ring.operation, g}, ring.shares.Segment(mine, g)));
  for (uint32_t k = 0; k < total; ++k) {
    RM_TRY(ring.transport.Wait(ring.previous()));
    if (k + kRingAhead < total) RM_TRY(post(k + kRingAhead));
    const uint32_t step = k / ring.shares.segments;
    if (step + 1 < steps)
      RM_TRY(ring.transport.Send(ring.next(), {ring.operation, k + ring.shares.segments},
                                 ring.shares.Segment(owner(step), k % ring.shares.segments)));
  }
  return ring.transport.Flush();
}

}  // namespace

Status RingAllReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                     const Combiner& combiner) {
  const auto rounds = static_cast<uint32_t>(transport.world() - 1);
  const Ring ring = MakeRing(transport, operation, data, PartBytes(data.size(), transport.world()));
  // The sum of share c is complete at rank c - 1, which forwards it: no pause between the two phases.
  return RunRing(ring, 2 * rounds, (transport.rank() + transport.world() - 1) % transport.world(),
                 [&](uint32_t step, std::span<std::byte> segment) {
                   return step < rounds ? PostedReceive{segment, PostedReceive::Action::kPrepend, combiner}
                                        : PostedReceive{segment, PostedReceive::Action::kCopy, {}};
                 });
}

// Between two ranks a ring would send the same bytes in twice as many rounds.
Status ExchangeAllReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                         const Combiner& combiner) {
  const int peer = 1 - transport.rank();
  const auto action = peer == 0 ? PostedReceive::Action::kPrepend : PostedReceive::Action::kAppend;
  const Shares whole = Cut(data, data.size(), transport.segment_bytes(), kShortestInRing);
  const uint32_t count = whole.segments;
  uint32_t waiting = 0;
  for (uint32_t k = 0; k <= count; ++k) {
    if (k < count) RM_TRY(transport.Send(peer, {operation, k}, whole.Segment(0, k)));
    if (k == 0) continue;
    // Our values must have left before the peer's values are added to them.
    RM_TRY(transport.WaitForSends(peer, k < count ? 1 : 0));
    RM_TRY(transport.Post(peer, {operation, k - 1}, {whole.Segment(0, k - 1), action, combiner}));
    if (++waiting <= kExchangeAhead) continue;
    RM_TRY(transport.Wait(peer));
    --waiting;
  }
  for (; waiting > 0; --waiting) RM_TRY(transport.Wait(peer));
  return transport.Flush();
}

Status RingReduceScatter(Transport& transport, const Operation& operation, std::span<std::byte> data,
                         const Combiner& combiner) {
  const int world = transport.world();
  const Ring ring = MakeRing(transport, operation, data, data.size() / world);
  return RunRing(ring, static_cast<uint32_t>(world - 1), (transport.rank() + world - 2) % world,
                 [&](uint32_t, std::span<std::byte> segment) {
                   return PostedReceive{segment, PostedReceive::Action::kPrepend, combiner};
                 });
}

Status RingAllGather(Transport& transport, const Operation& operation, std::span<std::byte> data) {
  const int world = transport.world();
  const Ring ring = MakeRing(transport, operation, data, data.size() / world);
  return RunRing(ring, static_cast<uint32_t>(world - 1), (transport.rank() + world - 1) % world,
                 [&](uint32_t, std::span<std::byte> segment) {
                   return PostedReceive{segment, PostedReceive::Action::kCopy, {}};
                 });
}

}  // namespace ringmaster::fabric
