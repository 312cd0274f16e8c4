// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "worker/fabric/algorithms.h"

namespace ringmaster::fabric {
namespace {

// Ranks counted from the root, which is 0.
struct View {
  int world;
  int root;
  int me;
  View(const Transport& transport, int root_rank)
      : world(transport.world()), root(root_rank), me((transport.rank() - root_rank + world) % world) {}
  int Rank(int seen) const { return (seen + root) % world; }
};

}  // namespace

Status TreeBroadcast(Transport& transport, const Operation& operation, std::span<std::byte> data, int root) {
  const View view(transport, root);
  int distance = 1;
  while (distance < view.world && (view.me & distance) == 0) distance *= 2;
  if (view.me != 0) {
    const int parent = view.Rank(view.me - distance);
    RM_TRY(transport.Post(parent, {operation, 0}, {data, PostedReceive::Action::kCopy, {}}));
    RM_TRY(transport.Wait(parent));
  }
  for (distance /= 2; distance >= 1; distance /= 2)
    if (view.me + distance < view.world)
      RM_TRY(transport.Send(view.Rank(view.me + distance), {operation, 0}, data));
  return transport.Flush();
}

Status TreeReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                  const Combiner& combiner, int root) {
  const View view(transport, root);
  for (int distance = 1; distance < view.world; distance *= 2) {
    if ((view.me & distance) != 0) {
      RM_TRY(transport.Send(view.Rank(view.me - distance), {operation, 0}, data));
      return transport.Flush();
    }
    if (view.me + distance >= view.world) continue;
    const int child = view.Rank(view.me + distance);
    RM_TRY(transport.Post(child, {operation, 0}, {data, PostedReceive::Action::kAppend, combiner}));
    RM_TRY(transport.Wait(child));
  }
  return Ok();
}

Status ChainBroadcast(Transport& transport, const Operation& operation, std::span<std::byte> data, int root) {
  constexpr size_t kAhead = 16;
  const View view(transport, root);
  const int previous = view.Rank(view.me + view.world - 1);
  const int next = view.Rank(view.me + 1);
  const bool last = view.me == view.world - 1;
  const size_t segment = transport.segment_bytes();
  const size_t count = (data.size() + segment - 1) / segment;
  const auto at = [&](size_t k) {
    return data.subspan(k * segment, std::min(segment, data.size() - k * segment));
  };
  const auto post = [&](size_t k) {
    return transport.Post(previous, {operation, static_cast<uint32_t>(k)},
                          {at(k), PostedReceive::Action::kCopy, {}});
  };
  if (view.me != 0)
    for (size_t k = 0; k < std::min(kAhead, count); ++k) RM_TRY(post(k));
  for (size_t k = 0; k < count; ++k) {
    if (view.me != 0) {
      RM_TRY(transport.Wait(previous));
      if (k + kAhead < count) RM_TRY(post(k + kAhead));
    }
    if (!last) RM_TRY(transport.Send(next, {operation, static_cast<uint32_t>(k)}, at(k)));
  }
  return transport.Flush();
}

Status RingReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                  const Combiner& combiner, int root) {
  const int world = transport.world();
  const size_t elements = data.size() / kElementBytes;
  // Reduces equal shares by ring, and the few remaining elements by tree.
  const size_t share = elements / world * kElementBytes;
  const std::span<std::byte> shares = data.first(share * world);
  RM_TRY(RingReduceScatter(transport, operation, shares, combiner));
  RM_TRY(TreeReduce(transport, operation, data.subspan(share * world), combiner, root));
  if (transport.rank() != root)
    return SendBulk(transport, shares.subspan(transport.rank() * share, share), root);
  for (int d = 1; d < world; ++d) {
    const int q = (root + d) % world;
    RM_TRY(ReceiveBulk(transport, shares.subspan(q * share, share), q));
  }
  return Ok();
}

}  // namespace ringmaster::fabric
