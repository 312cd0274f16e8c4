// SPDX-License-Identifier: Apache-2.0

// The collectives of one generation. Every transport implements this interface.
//
// Not thread-safe. Sizes are in elements; world 1 and size 0 are valid everywhere.
//
// REQUIRES: every rank makes the same calls in the same order with the same sizes. A detected difference is a
// programming error: kInternal.
//
// Errors: kCancelled (aborted, or a peer gave up this generation or joined a newer one), kUnavailable (a peer
// died), kDeadlineExceeded (all members wait and no data arrives, or a connection is broken). An operation
// waits for a member that has not called it for as long as that member lives. After an error the buffers hold
// garbage and the communicator is unusable: destroy it.
//
// After a successful reduction every rank holds the same bits. The order in which floats are summed is a
// function of the transport, the world and the size, never of timing: rank order per element in shared
// memory; over messages a balanced tree over ranks for small data, and rank order starting at the owner of
// the share for large data (see algorithms.h). Integer sums are exact and agree across all transports.
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

  // `data` is `world` equal shares. Afterwards share `rank` holds the reduction; the rest is garbage.
  virtual Status ReduceScatter(std::span<int32_t> data, ReduceOp op) = 0;
  virtual Status ReduceScatter(std::span<float> data, ReduceOp op) = 0;

  // `data` is `world` equal shares. Rank r contributes share r.
  virtual Status AllGather(std::span<std::byte> data) = 0;

  virtual Status Broadcast(std::span<std::byte> data, int root) = 0;

  // In place on `root`; the other ranks' data is garbage afterwards.
  virtual Status Reduce(std::span<int32_t> data, ReduceOp op, int root) = 0;
  virtual Status Reduce(std::span<float> data, ReduceOp op, int root) = 0;

  // Sends share r of `in` to rank r and receives share r of `out` from it. Not in place.
  virtual Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out) = 0;

  virtual Status Barrier() = 0;

  // Bulk transfer between two ranks, such as the state of a joining member; the other ranks do not call. The
  // n-th Send to a peer matches the peer's n-th Receive from this rank.
  virtual Status Send(std::span<const std::byte> data, int peer) = 0;
  virtual Status Receive(std::span<std::byte> data, int peer) = 0;

  // Shows that a thread which waits for peers is alive (FabricOptions::on_wait). For communicators that are
  // created over this one. Thread-safe.
  virtual void ShowWait() const {}
};

}  // namespace ringmaster::fabric
