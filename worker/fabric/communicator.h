// SPDX-License-Identifier: Apache-2.0

// Collectives of one generation.
//
// Thread rule: one thread at a time. Every rank makes the same calls in the same order with the same sizes; a
// difference is a programming error and is reported as kInternal where it shows. On failure buffers hold
// garbage and the communicator is unusable: destroy it. Errors: kCancelled (aborted, or a peer gave the
// generation up or moved on to a newer one), kUnavailable (a peer died), kDeadlineExceeded (no progress in
// time). An operation never hangs.
//
// On success of a reduction every rank holds the same bits. The order in which floats are summed is a
// function of the transport, the world and the size, never of timing: rank order per element in shared
// memory; over messages a balanced tree over ranks when small, and rank order beginning at the owner of the
// share when large (see algorithms.h). Integers are exact, so they agree across all of these.
//
// Sizes are in elements. world 1 and size 0 are fine everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace ringmaster::fabric {

enum class ReduceOp : uint8_t { kSum, kMax };

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual uint64_t generation() const = 0;

  // In place. int32 sums wrap like unsigned arithmetic (callers keep them in range).
  virtual Status AllReduce(std::span<int32_t> data, ReduceOp op) = 0;
  virtual Status AllReduce(std::span<float> data, ReduceOp op) = 0;

  // `data` is world equal shares; afterwards share `rank` holds the sum (the rest is garbage).
  virtual Status ReduceScatter(std::span<int32_t> data, ReduceOp op) = 0;
  virtual Status ReduceScatter(std::span<float> data, ReduceOp op) = 0;

  // `data` is world equal shares; share r comes from rank r.
  virtual Status AllGather(std::span<std::byte> data) = 0;

  virtual Status Broadcast(std::span<std::byte> data, int root) = 0;

  // In place on root; elsewhere garbage.
  virtual Status Reduce(std::span<int32_t> data, ReduceOp op, int root) = 0;
  virtual Status Reduce(std::span<float> data, ReduceOp op, int root) = 0;

  // Share r of `in` goes to rank r; share r of `out` came from rank r. Not in place.
  virtual Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out) = 0;

  virtual Status Barrier() = 0;

  // Bulk transfer between two ranks (state of a joiner); others do not call. Pairs up with the peer's call in
  // order.
  virtual Status Send(std::span<const std::byte> data, int peer) = 0;
  virtual Status Receive(std::span<std::byte> data, int peer) = 0;
};

}  // namespace ringmaster::fabric
