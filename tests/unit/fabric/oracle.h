// SPDX-License-Identifier: Apache-2.0

// Runs every collective once and compares it with plain arithmetic. Inputs are a function of (seed, rank), so
// every member can compute the inputs of all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::fabric::testing {

// `elements` per rank, or per share where an operation has shares. `memory` holds the buffers: at least
// 2 * world * elements * 4 bytes.
Status CheckAll(Communicator& communicator, size_t elements, uint64_t seed, std::span<std::byte> memory);

// Runs the all-reduces only.
Status CheckAllReduce(Communicator& communicator, size_t elements, uint64_t seed,
                      std::span<std::byte> memory);

}  // namespace ringmaster::fabric::testing
