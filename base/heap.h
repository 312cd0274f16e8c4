// SPDX-License-Identifier: Apache-2.0

// The room that freed memory leaves in this process.
#pragma once

#include <malloc.h>

namespace ringmaster {

// Gives it back to the system; the allocator alone would keep most of it. Any thread. Nothing happens under a
// sanitizer, which brings an allocator of its own: libc's, never used, would be set up by this very call, and
// two at once would meet half of it.
inline void TrimHeap() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  ::malloc_trim(0);
#endif
}

}  // namespace ringmaster
