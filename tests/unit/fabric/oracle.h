// SPDX-License-Identifier: Apache-2.0

// Runs every collective once and compares it with plain arithmetic. Inputs are a function of (seed, rank), so
// every member can compute what all others hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::fabric::testing {

// `elements` per rank (and per share, where an operation has shares). `memory`: where the buffers are to be;
// must hold 2 * world * elements * 4 bytes.
Status CheckAll(Communicator& communicator, size_t elements, uint64_t seed, std::span<std::byte> memory);

// Only the all-reduces.
Status CheckAllReduce(Communicator& communicator, size_t elements, uint64_t seed,
                      std::span<std::byte> memory);

}  // namespace ringmaster::fabric::testing
