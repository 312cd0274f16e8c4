// SPDX-License-Identifier: Apache-2.0

// Row numbers sorted by a key of theirs, rows of equal keys in their order: a radix sort of eight bits a
// pass. What follows may then add up the rows of each key in an order that does not depend on timing.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// int32_t of scratch, which also holds the result.
int64_t SortRowsScratch(int64_t rows);

// Keys lie in [0, keys_end). Returns where in `scratch` the sorted row numbers will be.
const int32_t* SortRows(Stream stream, int64_t rows, int64_t keys_end, const int32_t* keys, int32_t* scratch);

}  // namespace ringmaster::cuda::kernels
