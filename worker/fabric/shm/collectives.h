// SPDX-License-Identifier: Apache-2.0

// The pull collectives, one per function, over a Group. Each takes untyped bytes; the Communicator in
// communicator.cc gives them their types. Order of float sums: rank order per element.
//
// Two paths. Direct: the data lies in memory that peers can map; everyone reads it where it lies, and nobody
// returns before all have read (the caller may change it then). Staged: the data goes in pieces through the
// halves of the staging area in turn; a half may be filled again once all have entered the next piece, which
// proves that they are done with the one before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "worker/fabric/combine.h"
#include "worker/fabric/shm/group.h"

namespace ringmaster::fabric::shm {

enum class Kind : uint32_t {
  kAllReduce = 1,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
};

// State that runs through all collectives of a generation.
class Collectives {
 public:
  explicit Collectives(Group& group) : group_(group) {}

  // root -1: everyone gets the sum.
  Status Reduce(std::span<std::byte> data, const Combiner& combiner, int root);
  Status ReduceScatter(std::span<std::byte> data, const Combiner& combiner);
  Status AllGather(std::span<std::byte> data);
  Status Broadcast(std::span<std::byte> data, int root);
  Status AllToAll(std::span<const std::byte> in, std::span<std::byte> out);
  Status Barrier();

 private:
  Status SmallReduce(std::span<std::byte> data, const Combiner& combiner, uint32_t tag);
  Status ReduceDirect(std::span<std::byte> data, const Combiner& combiner, int root);
  Status ReduceStaged(std::span<std::byte> data, const Combiner& combiner, int root);

  // Shows `data` to all and waits until all have shown theirs. True when everyone's data (or only the one of
  // `source`, unless -1) can be read where it lies.
  Result<bool> Begin(std::span<const std::byte> data, uint32_t tag, int source);
  // All have read; buffers are the caller's again.
  Status End();
  std::byte* OwnStaging(size_t piece, size_t offset);
  const std::byte* Staging(int q, size_t piece, size_t offset);
  Status Copy(int q, std::byte* dst, const std::byte* src, size_t bytes);

  Group& group_;
  uint64_t operations_ = 0;
  size_t pieces_ = 0;                    // staged so far: the parity picks the half
  std::vector<const std::byte*> shown_;  // where each rank's data of this operation lies; by Begin
};

}  // namespace ringmaster::fabric::shm
