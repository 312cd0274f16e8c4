// SPDX-License-Identifier: Apache-2.0

// The shared-memory collectives, one per function, over a Group: every member reads its peers' memory. Each
// function takes untyped bytes; the Communicator in communicator.cc adds the types. Order of float sums: rank
// order per element.
//
// There are two paths. Direct: the data is in memory that peers have mapped. Every member reads it in place,
// and none returns before all have read, since the caller may change the data then. Staged: the data passes
// in pieces through the slots of the staging area, in turn. A member fills a slot again only when it knows
// that all have read the piece that was there: the next piece is published by members that have read the one
// before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "worker/fabric/combine.h"
#include "worker/fabric/shm/group.h"

namespace ringmaster::fabric::shm {

// The collectives of one generation. Not thread-safe.
class Collectives {
 public:
  explicit Collectives(Group& group) : group_(group) {}

  // root -1: every rank gets the sum.
  Status Reduce(std::span<std::byte> data, const Combiner& combiner, int root);
  Status ReduceScatter(std::span<std::byte> data, const Combiner& combiner);
  Status AllGather(std::span<std::byte> data);
  Status Broadcast(std::span<std::byte> data, int root);
  Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out);
  Status Barrier();

 private:
  Status SmallReduce(std::span<std::byte> data, const Combiner& combiner, uint32_t call);
  Status ReduceAtOnce(std::span<std::byte> data, const Combiner& combiner, uint32_t call);
  Status ReduceDirect(std::span<std::byte> data, const Combiner& combiner, int root);
  Status ReduceStaged(std::span<std::byte> data, const Combiner& combiner, int root);

  // Publishes where `data` is and waits until all ranks have. Returns whether the data of every rank (or of
  // `source` alone, unless it is -1) can be read in place.
  Result<bool> Begin(std::span<const std::byte> data, uint32_t call, int source);
  // Every collective announces itself before its first phase; returns the half that its data may use.
  uint64_t Announce(uint32_t call, uint64_t bytes);
  // An operation without data, or in a world of one, only counts.
  Status Skip();
  // Compares what all ranks have announced. REQUIRES: all have reached the first phase of the operation.
  Status CompareCalls();
  // Waits until all ranks have read; the caller may change its buffers then.
  Status End();
  std::byte* OwnStaging(size_t piece, size_t offset);
  const std::byte* Staging(int q, size_t piece, size_t offset);
  Status Copy(int q, std::byte* dst, const std::byte* src, size_t bytes);

  Group& group_;
  uint32_t operations_ = 0;                  // called
  uint64_t half_ = 0;                        // changes with each operation that has phases
  size_t pieces_ = 0;                        // staged so far: the parity selects the half
  std::vector<const std::byte*> published_;  // each rank's data of this operation; set by Begin
};

}  // namespace ringmaster::fabric::shm
