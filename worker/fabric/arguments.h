// SPDX-License-Identifier: Apache-2.0

// Checks of the arguments of collectives, which every Communicator makes. A failed check is a programming
// error of the caller: kInternal. Pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::fabric {

// `size` elements are `world` equal shares.
Status CheckShares(const Communicator& communicator, size_t size);
// `rank` is a rank of this world.
Status CheckRank(const Communicator& communicator, int rank);
// `peer` is another rank of this world.
Status CheckPeer(const Communicator& communicator, int peer);
// `in` and `out` are equal shares of the same size.
Status CheckAllToAll(const Communicator& communicator, std::span<const std::byte> in,
                     std::span<const std::byte> out);

}  // namespace ringmaster::fabric
