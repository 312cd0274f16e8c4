// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/arguments.h"

namespace ringmaster::fabric {

Status CheckShares(const Communicator& communicator, size_t size) {
  if (size % static_cast<size_t>(communicator.world()) == 0) return Ok();
  return Error{Code::kInternal,
               fmt::format("{} elements are not {} equal shares", size, communicator.world())};
}

Status CheckRank(const Communicator& communicator, int rank) {
  if (rank >= 0 && rank < communicator.world()) return Ok();
  return Error{Code::kInternal, fmt::format("no rank {} in a world of {}", rank, communicator.world())};
}

Status CheckPeer(const Communicator& communicator, int peer) {
  RM_TRY(CheckRank(communicator, peer));
  if (peer != communicator.rank()) return Ok();
  return Error{Code::kInternal, "a transfer to oneself"};
}

Status CheckAllToAll(const Communicator& communicator, std::span<const std::byte> in,
                     std::span<const std::byte> out) {
  RM_TRY(CheckShares(communicator, in.size()));
  if (in.size() == out.size()) return Ok();
  return Error{Code::kInternal, "all-to-all: in and out differ in size"};
}

}  // namespace ringmaster::fabric
