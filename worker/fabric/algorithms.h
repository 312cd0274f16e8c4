// SPDX-License-Identifier: Apache-2.0

// Collectives over messages, one algorithm per function. All ranks call the same one with the same sizes and
// the same operation number. On failure buffers hold garbage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "worker/fabric/combine.h"
#include "worker/fabric/transport.h"

namespace ringmaster::fabric {

// --- ring.cc: every byte crosses each link once per phase; for large data ---
// Sum order of share c (shares are cut at cache lines): ranks c, c+1, ... around to c-1. Of the
// reduce-scatter, where share c has to end at rank c: c+1, c+2, ... around to c.
Status RingAllReduce(Transport& transport, uint32_t operation, std::span<std::byte> data,
                     const Combiner& combiner);
// The same for two ranks only, in one round. Sum order: rank 0, rank 1.
Status ExchangeAllReduce(Transport& transport, uint32_t operation, std::span<std::byte> data,
                         const Combiner& combiner);
Status RingReduceScatter(Transport& transport, uint32_t operation, std::span<std::byte> data,
                         const Combiner& combiner);
Status RingAllGather(Transport& transport, uint32_t operation, std::span<std::byte> data);

// --- direct.cc: every rank sums a share of its own, to which all others send; the same bytes in two rounds
// instead of 2 (world - 1), by messages to everybody ---
// Sum order as that of the ring.
Status DirectAllReduce(Transport& transport, uint32_t operation, std::span<std::byte> data,
                       const Combiner& combiner);

// --- doubling.cc: log2(world) rounds of everything; for small data ---
// Sum order: a balanced tree over ranks; the ranks beyond the largest power of two fold into the first ones.
Status DoublingAllReduce(Transport& transport, uint32_t operation, std::span<std::byte> data,
                         const Combiner& combiner);
// Dissemination.
Status DoublingBarrier(Transport& transport, uint32_t operation);

// --- tree.cc ---
Status TreeBroadcast(Transport& transport, uint32_t operation, std::span<std::byte> data, int root);
// Sum order: a balanced tree over ranks as seen from the root.
Status TreeReduce(Transport& transport, uint32_t operation, std::span<std::byte> data,
                  const Combiner& combiner, int root);
// In segments along a chain; for large data.
Status ChainBroadcast(Transport& transport, uint32_t operation, std::span<std::byte> data, int root);
// Ring reduce-scatter, then all shares to the root.
Status RingReduce(Transport& transport, uint32_t operation, std::span<std::byte> data,
                  const Combiner& combiner, int root);

// --- pairwise.cc ---
Status PairwiseAllToAll(Transport& transport, uint32_t operation, std::span<const std::byte> in,
                        std::span<std::byte> out);
Status SendBulk(Transport& transport, std::span<const std::byte> data, int peer);
Status ReceiveBulk(Transport& transport, std::span<std::byte> data, int peer);

// --- reference.cc: everything to rank 0, summed in rank order, and back. What the others are compared with.
Status ReferenceAllReduce(Transport& transport, uint32_t operation, std::span<std::byte> data,
                          const Combiner& combiner);

}  // namespace ringmaster::fabric
