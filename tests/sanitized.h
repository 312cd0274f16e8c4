// SPDX-License-Identifier: Apache-2.0

// Instrumented code is several times slower, so tests repeat less of the same in it; the plain build repeats
// all.
#pragma once

#include "base/sanitizers.h"

namespace ringmaster {

#if defined(RINGMASTER_ADDRESS_SANITIZER) || defined(RINGMASTER_THREAD_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace ringmaster
