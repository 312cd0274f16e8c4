// SPDX-License-Identifier: Apache-2.0

// Collectives over messages, one algorithm per function; message_communicator.cc chooses among them.
//
// REQUIRES: all ranks call the same function with the same sizes and an equal Operation. After an
// error the buffers hold garbage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "worker/fabric/combine.h"
#include "worker/fabric/operation.h"
#include "worker/fabric/transport.h"

namespace ringmaster::fabric {

// --- ring.cc: every byte crosses each link once per phase; for large data ---
// Sum order of share c (shares are cut at cache lines): ranks c, c+1, ... around to c-1. In the
// reduce-scatter, where share c must end at rank c: c+1, c+2, ... around to c.
Status RingAllReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                     const Combiner& combiner);
// The all-reduce of two ranks, in one round. Sum order: rank 0, rank 1.
Status ExchangeAllReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                         const Combiner& combiner);
Status RingReduceScatter(Transport& transport, const Operation& operation, std::span<std::byte> data,
                         const Combiner& combiner);
Status RingAllGather(Transport& transport, const Operation& operation, std::span<std::byte> data);

// --- direct.cc: every rank sums its share, which all other ranks send to it. Moves as many bytes as the ring
// in 2 rounds instead of 2 (world - 1), with messages between all pairs ---
// Sum order: as in the ring.
Status DirectAllReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                       const Combiner& combiner);

// --- doubling.cc: recursive doubling, log2(world) rounds of all data; for small data ---
// Sum order: a balanced tree over ranks; the ranks beyond the largest power of two fold into the first ones.
Status DoublingAllReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                         const Combiner& combiner);
// Dissemination barrier.
Status DoublingBarrier(Transport& transport, const Operation& operation);

// --- tree.cc ---
Status TreeBroadcast(Transport& transport, const Operation& operation, std::span<std::byte> data, int root);
// Sum order: a balanced tree over ranks, counted from the root.
Status TreeReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                  const Combiner& combiner, int root);
// In segments along a chain; for large data.
Status ChainBroadcast(Transport& transport, const Operation& operation, std::span<std::byte> data, int root);
// Ring reduce-scatter; then every rank sends its share to the root.
Status RingReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                  const Combiner& combiner, int root);

// --- pairwise.cc ---
Status PairwiseAllToAll(Transport& transport, const Operation& operation, std::span<const std::byte> in,
                        std::span<std::byte> out);
Status SendBulk(Transport& transport, std::span<const std::byte> data, int peer);
Status ReceiveBulk(Transport& transport, std::span<std::byte> data, int peer);

// --- reference.cc: rank 0 receives all data, sums it in rank order and sends the sum back. The reference
// that tests and benches compare the other algorithms with. ---
Status ReferenceAllReduce(Transport& transport, const Operation& operation, std::span<std::byte> data,
                          const Combiner& combiner);

}  // namespace ringmaster::fabric
