// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "worker/fabric/algorithms.h"
#include "worker/fabric/copy.h"

namespace ringmaster::fabric {
namespace {

constexpr size_t kPostedAhead = 16;

size_t Segments(const Transport& transport, size_t bytes) {
  return (bytes + transport.segment_bytes() - 1) / transport.segment_bytes();
}

template <class Span>
Span SegmentOf(const Transport& transport, Span data, size_t k) {
  const size_t segment = transport.segment_bytes();
  return data.subspan(k * segment, std::min(segment, data.size() - k * segment));
}

Status ReceiveSegments(Transport& transport, const Operation& operation, std::span<std::byte> data,
                       int peer) {
  const size_t count = Segments(transport, data.size());
  for (size_t k = 0; k < count + kPostedAhead; ++k) {
    if (k >= kPostedAhead) RM_TRY(transport.Wait(peer));
    if (k < count)
      RM_TRY(transport.Post(peer, {operation, static_cast<uint32_t>(k)},
                            {SegmentOf(transport, data, k), PostedReceive::Action::kCopy, {}}));
  }
  return Ok();
}

Status SendSegments(Transport& transport, const Operation& operation, std::span<const std::byte> data,
                    int peer) {
  for (size_t k = 0; k < Segments(transport, data.size()); ++k)
    RM_TRY(transport.Send(peer, {operation, static_cast<uint32_t>(k)}, SegmentOf(transport, data, k)));
  return Ok();
}

// Only two ranks take part, so the transfer has no number among the collectives.
Operation Transfer(size_t bytes) { return {UINT32_MAX, MakeCall(OperationKind::kTransfer), bytes}; }

}  // namespace

Status PairwiseAllToAll(Transport& transport, const Operation& operation, std::span<const std::byte> in,
                        std::span<std::byte> out) {
  const int world = transport.world();
  const int rank = transport.rank();
  const size_t share = in.size() / world;
  CopyBytes(out.data() + rank * share, in.data() + rank * share, share);
  for (int d = 1; d < world; ++d) {
    const int to = (rank + d) % world;
    const int from = (rank + world - d) % world;
    RM_TRY(SendSegments(transport, operation, in.subspan(to * share, share), to));
    RM_TRY(ReceiveSegments(transport, operation, out.subspan(from * share, share), from));
  }
  return transport.Flush();
}

Status SendBulk(Transport& transport, std::span<const std::byte> data, int peer) {
  RM_TRY(SendSegments(transport, Transfer(data.size()), data, peer));
  return transport.Flush();
}

Status ReceiveBulk(Transport& transport, std::span<std::byte> data, int peer) {
  return ReceiveSegments(transport, Transfer(data.size()), data, peer);
}

}  // namespace ringmaster::fabric
