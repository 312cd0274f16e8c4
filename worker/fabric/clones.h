// SPDX-License-Identifier: Apache-2.0

// RM_CLONES before a function: one binary for all machines. The loader picks the widest version that the CPU
// supports. Sanitizers crash in the ifunc resolvers this needs.
#pragma once

#include "base/sanitizers.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(RINGMASTER_ADDRESS_SANITIZER) && !defined(RINGMASTER_THREAD_SANITIZER)
#define RM_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define RM_CLONES
#endif
