// SPDX-License-Identifier: Apache-2.0

// Control over the memory that this process has freed but the allocator still holds.
#pragma once

#include <malloc.h>

#include "base/sanitizers.h"

namespace ringmaster {

// Returns freed memory to the system; the allocator alone would keep most of it. Thread-safe. Does nothing
// under a sanitizer: sanitizers replace the allocator, so this call would initialize libc's unused one, and
// two concurrent calls would race in that initialization.
inline void TrimHeap() {
#if !defined(RINGMASTER_ADDRESS_SANITIZER) && !defined(RINGMASTER_THREAD_SANITIZER)
  ::malloc_trim(0);
#endif
}

}  // namespace ringmaster
