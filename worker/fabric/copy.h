// SPDX-License-Identifier: Apache-2.0

// Copies of bulk data. The C library's memcpy selects an instruction by size and CPU: `rep movsb` for medium
// sizes, whose speed on AMD Zen 3 and Zen 4 depends on the last bits of both addresses, and stores that bypass
// the caches for large ones, though a peer reads the data next. CopyBytes is one loop of vector loads and
// stores at every size.
#pragma once

#include <cstddef>

namespace ringmaster::fabric {

// REQUIRES: the buffers do not overlap. Pure.
void CopyBytes(std::byte* dst, const std::byte* src, size_t bytes);

}  // namespace ringmaster::fabric
