// SPDX-License-Identifier: Apache-2.0

// The numbers of ranks with which the collectives are tested.
#pragma once

#include <vector>

#include "tests/sanitized.h"

namespace ringmaster::fabric::testing {

// The ranks of a large world on a few processors mostly wait for each other, and instrumented code makes that
// last minutes. So it runs fewer worlds: alone, two, an odd number, a power of two, and more of neither kind.
inline std::vector<int> Worlds() {
  if (kSanitized) return {1, 2, 3, 4, 7};
  return {1, 2, 3, 4, 5, 6, 7, 8, 9};
}

}  // namespace ringmaster::fabric::testing
