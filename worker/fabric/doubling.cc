// SPDX-License-Identifier: Apache-2.0

#include <bit>

#include "worker/fabric/algorithms.h"

namespace ringmaster::fabric {

Status DoublingAllReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                         const Combiner& combiner) {
  const int rank = transport.rank();
  const auto core = static_cast<int>(std::bit_floor(static_cast<unsigned>(transport.world())));
  const int extra = transport.world() - core;
  // An extra rank sends its data to a core rank and receives the result from it.
  if (rank >= core) {
    RM_TRY(transport.Send(rank - core, {operation, 0}, data));
    RM_TRY(transport.Flush());
    RM_TRY(transport.Post(rank - core, {operation, 1}, {data, PostedReceive::Action::kCopy, {}}));
    return transport.Wait(rank - core);
  }
  if (rank < extra) {
    RM_TRY(transport.Post(rank + core, {operation, 0}, {data, PostedReceive::Action::kAppend, combiner}));
    RM_TRY(transport.Wait(rank + core));
  }
  uint32_t step = 2;
  for (int distance = 1; distance < core; distance *= 2, ++step) {
    const int peer = rank ^ distance;
    RM_TRY(transport.Send(peer, {operation, step}, data));
    RM_TRY(transport.WaitForSends(peer, 0));  // our values must have left before the peer's are added to them
    // Both partners compute lower + upper: the same bits.
    const auto action = peer < rank ? PostedReceive::Action::kPrepend : PostedReceive::Action::kAppend;
    RM_TRY(transport.Post(peer, {operation, step}, {data, action, combiner}));
    RM_TRY(transport.Wait(peer));
  }
  if (rank < extra) RM_TRY(transport.Send(rank + core, {operation, 1}, data));
  return transport.Flush();
}

Status DoublingBarrier(Transport& transport, const Operation& operation) {
  const int world = transport.world();
  uint32_t step = 0;
  for (int distance = 1; distance < world; distance *= 2, ++step) {
    const int to = (transport.rank() + distance) % world;
    const int from = (transport.rank() + world - distance) % world;
    RM_TRY(transport.Send(to, {operation, step}, {}));
    RM_TRY(transport.Post(from, {operation, step}, {}));
    RM_TRY(transport.Wait(from));
  }
  return transport.Flush();
}

}  // namespace ringmaster::fabric
