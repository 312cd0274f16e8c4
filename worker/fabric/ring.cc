#include <algorithm>
#include <functional>

#include "worker/fabric/algorithms.h"

namespace ringmaster::fabric {
namespace {

constexpr size_t kLine = 64;
constexpr uint32_t kAhead = 16;  // landings posted before their message can have come
constexpr size_t kExchangeBytes = 224 << 10;
constexpr uint32_t kExchangeAhead = 4;
constexpr size_t kShortest = 16 << 10;  // shorter segments cost more in messages than they gain in overlap

struct Ring {
  Transport& transport;
  uint32_t operation;
  std::span<std::byte> data;
  size_t share;  // bytes, the last one may be shorter
  size_t segment;
  uint32_t segments;  // per share

  int world() const { return transport.world(); }
  int next() const { return (transport.rank() + 1) % world(); }
  int previous() const { return (transport.rank() + world() - 1) % world(); }

  std::span<std::byte> Segment(int owner, uint32_t g) const {
    const size_t end_of_share = std::min(data.size(), share * (owner + 1));
    const size_t begin = std::min(end_of_share, share * owner + segment * g);
    return data.subspan(begin, std::min(segment, end_of_share - begin));
  }
};

Ring MakeRing(Transport& transport, uint32_t operation, std::span<std::byte> data, size_t share) {
  // Equal segments, at least two per share where that is worth a message: one travels while the other is
  // summed.
  const size_t fewest = share >= 2 * kShortest ? 2 : 1;
  const size_t segments =
      std::max(fewest, (share + transport.segment_bytes() - 1) / transport.segment_bytes());
  const size_t segment = std::max(kLine, (share + segments * kLine - 1) / (segments * kLine) * kLine);
  return {transport, operation, data, share, segment, static_cast<uint32_t>(segments)};
}

// The ring's one movement. In step s this rank takes in share `first - s` and passes it on in step s + 1;
// before, it sends share `first + 1`, which it has. Segments flow on their own: one is passed on as soon as
// it has landed.
Status Turn(const Ring& ring, uint32_t steps, int first,
            const std::function<Landing(uint32_t, std::span<std::byte>)>& land) {
  const auto owner = [&](uint32_t step) {
    const int world = ring.world();
    return ((first - static_cast<int>(step)) % world + world) % world;
  };
  const uint32_t total = steps * ring.segments;
  const auto post = [&](uint32_t k) {
    const uint32_t step = k / ring.segments;
    return ring.transport.Post(ring.previous(), {ring.operation, k},
                               land(step, ring.Segment(owner(step), k % ring.segments)));
  };
  for (uint32_t k = 0; k < std::min(kAhead, total); ++k) RM_TRY(post(k));
  const int mine = (first + 1) % ring.world();
  for (uint32_t g = 0; g < ring.segments; ++g)
    RM_TRY(ring.transport.Send(ring.next(), {ring.operation, g}, ring.Segment(mine, g)));
  for (uint32_t k = 0; k < total; ++k) {
    RM_TRY(ring.transport.Wait(ring.previous()));
    if (k + kAhead < total) RM_TRY(post(k + kAhead));
    const uint32_t step = k / ring.segments;
    if (step + 1 < steps)
      RM_TRY(ring.transport.Send(ring.next(), {ring.operation, k + ring.segments},
                                 ring.Segment(owner(step), k % ring.segments)));
  }
  return ring.transport.Flush();
}

size_t ShareBytes(size_t bytes, int world) {
  return (bytes / world + (bytes % world != 0) + kLine - 1) / kLine * kLine;
}

}  // namespace

Status RingAllReduce(Transport& transport, uint32_t operation, std::span<std::byte> data,
                     const Combiner& combiner) {
  const auto rounds = static_cast<uint32_t>(transport.world() - 1);
  const Ring ring = MakeRing(transport, operation, data, ShareBytes(data.size(), transport.world()));
  // The sum of share c is complete at rank c - 1, which passes it on: no pause between the two halves.
  return Turn(ring, 2 * rounds, (transport.rank() + transport.world() - 1) % transport.world(),
              [&](uint32_t step, std::span<std::byte> segment) {
                return step < rounds ? Landing{segment, Landing::Action::kPrepend, combiner}
                                     : Landing{segment, Landing::Action::kCopy, {}};
              });
}

// Between two ranks a ring would send the same bytes in twice the rounds.
Status ExchangeAllReduce(Transport& transport, uint32_t operation, std::span<std::byte> data,
                         const Combiner& combiner) {
  const int peer = 1 - transport.rank();
  const auto action = peer == 0 ? Landing::Action::kPrepend : Landing::Action::kAppend;
  const size_t most = std::min(kExchangeBytes, transport.segment_bytes());
  const size_t segments = (data.size() + most - 1) / most;
  const size_t segment = (data.size() + segments * kLine - 1) / (segments * kLine) * kLine;
  const auto count = static_cast<uint32_t>(segment == 0 ? 0 : (data.size() + segment - 1) / segment);
  const auto piece = [&](uint32_t k) {
    return data.subspan(k * segment, std::min(segment, data.size() - k * segment));
  };
  uint32_t waiting = 0;
  for (uint32_t k = 0; k <= count; ++k) {
    if (k < count) RM_TRY(transport.Send(peer, {operation, k}, piece(k)));
    if (k == 0) continue;
    // Our own values must have left before the other's come on top.
    RM_TRY(transport.Settle(peer, k < count ? 1 : 0));
    RM_TRY(transport.Post(peer, {operation, k - 1}, {piece(k - 1), action, combiner}));
    if (++waiting <= kExchangeAhead) continue;
    RM_TRY(transport.Wait(peer));
    --waiting;
  }
  for (; waiting > 0; --waiting) RM_TRY(transport.Wait(peer));
  return transport.Flush();
}

Status RingReduceScatter(Transport& transport, uint32_t operation, std::span<std::byte> data,
                         const Combiner& combiner) {
  const int world = transport.world();
  const Ring ring = MakeRing(transport, operation, data, data.size() / world);
  return Turn(ring, static_cast<uint32_t>(world - 1), (transport.rank() + world - 2) % world,
              [&](uint32_t, std::span<std::byte> segment) {
                return Landing{segment, Landing::Action::kPrepend, combiner};
              });
}

Status RingAllGather(Transport& transport, uint32_t operation, std::span<std::byte> data) {
  const int world = transport.world();
  const Ring ring = MakeRing(transport, operation, data, data.size() / world);
  return Turn(ring, static_cast<uint32_t>(world - 1), (transport.rank() + world - 1) % world,
              [&](uint32_t, std::span<std::byte> segment) {
                return Landing{segment, Landing::Action::kCopy, {}};
              });
}

}  // namespace ringmaster::fabric
