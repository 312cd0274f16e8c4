// SPDX-License-Identifier: Apache-2.0

// Bulk transfer between two same-host ranks; the receiver reads the sender's memory. Independent of the
// phases of the collectives: the two sides count pieces in their Cells. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "worker/fabric/shm/group.h"

namespace ringmaster::fabric::shm {

class Transfers {
 public:
  explicit Transfers(Group& group) : group_(group), offered_(group.world()), taken_(group.world()) {}

  Status Send(std::span<const std::byte> data, int peer);
  Status Receive(std::span<std::byte> data, int peer);

 private:
  Group& group_;
  std::vector<uint64_t> offered_;  // pieces, by receiver
  std::vector<uint64_t> taken_;    // pieces, by sender
};

}  // namespace ringmaster::fabric::shm
