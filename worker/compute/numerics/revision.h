// SPDX-License-Identifier: Apache-2.0

// The revision of everything that computes. Members of a job must have the same one: workers of two builds
// would otherwise add gradients with different last bits. Pure.
#pragma once

namespace ringmaster::numerics {

// Raised whenever equal input gives other bits than before, or a sample has another content or place in the
// order. The sources concerned are listed with their hash in sources.txt; numerics_test (Revision.*) fails
// when they change and that file does not.
inline constexpr int kRevision = 5;

}  // namespace ringmaster::numerics
