// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/algorithms.h"
#include "worker/fabric/shares.h"

namespace ringmaster::fabric {
namespace {

// Shorter segments cost more in messages than they gain in overlap.
constexpr size_t kShortestToMany = 64 << 10;

// Every rank owns a share. Peers are numbered by their distance: 1 is the next rank.
struct Direct {
  Transport& transport;
  Operation operation;
  Shares shares;

  uint32_t segments() const { return shares.segments; }
  int peers() const { return transport.world() - 1; }
  int Peer(int distance) const { return (transport.rank() + distance) % transport.world(); }
  std::span<std::byte> Segment(int owner, uint32_t g) const { return shares.Segment(owner, g); }
  Tag Contribution(uint32_t g) const { return {operation, g}; }
  Tag Final(uint32_t g) const { return {operation, segments() + g}; }
};

// Posts the receives from the peer at this distance. The peer's finished share overwrites the segments that
// this rank sent to the peer: that is safe, since the share cannot be finished before they arrived.
Status PostContribution(const Direct& s, int distance, uint32_t g, const Combiner& combiner) {
  const int peer = s.Peer(distance);
  RM_TRY(s.transport.Post(peer, s.Contribution(g),
                          {s.Segment(s.transport.rank(), g), PostedReceive::Action::kAppend, combiner}));
  if (g + 1 < s.segments()) return Ok();
  for (uint32_t f = 0; f < s.segments(); ++f)
    RM_TRY(s.transport.Post(peer, s.Final(f), {s.Segment(peer, f), PostedReceive::Action::kCopy, {}}));
  return Ok();
}

}  // namespace

Status DirectAllReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                       const Combiner& combiner) {
  const Direct s = {
      transport, operation,
      Cut(data, PartBytes(data.size(), transport.world()), transport.segment_bytes(), kShortestToMany)};
  for (uint32_t g = 0; g < s.segments(); ++g) RM_TRY(PostContribution(s, 1, g, combiner));
  // An owner adds the next rank's values first, so every rank sends to its previous rank first.
  for (uint32_t g = 0; g < s.segments(); ++g)
    for (int d = s.peers(); d > 0; --d)
      RM_TRY(transport.Send(s.Peer(d), s.Contribution(g), s.Segment(s.Peer(d), g)));
  // Adds the peers' values in the order of their distance, whichever arrives first: a segment is posted for
  // peer d + 1 once the message of peer d is delivered. Segments follow each other one peer apart.
  const auto peers = static_cast<uint32_t>(s.peers());
  for (uint32_t tick = 0; tick + 1 < s.segments() + peers; ++tick)
    for (uint32_t d = 1; d <= peers && d <= tick + 1; ++d) {
      const uint32_t g = tick + 1 - d;
      if (g >= s.segments()) continue;
      RM_TRY(transport.Wait(s.Peer(static_cast<int>(d))));
      if (d < peers) {
        RM_TRY(PostContribution(s, static_cast<int>(d) + 1, g, combiner));
        continue;
      }
      for (int to = s.peers(); to > 0; --to)
        RM_TRY(transport.Send(s.Peer(to), s.Final(g), s.Segment(transport.rank(), g)));
    }
  for (uint32_t g = 0; g < s.segments(); ++g)
    for (int d = 1; d <= s.peers(); ++d) RM_TRY(transport.Wait(s.Peer(d)));
  return transport.Flush();
}

}  // namespace ringmaster::fabric
