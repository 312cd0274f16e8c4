// SPDX-License-Identifier: Apache-2.0

// Stable radix sort of row numbers by key, eight bits per pass. A later kernel can then add the rows of each
// key in an order that does not depend on timing.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// Returns the int32_t of scratch, which also holds the result.
int64_t SortRowsScratch(int64_t rows);

// Enqueues the sort. Returns the sorted row numbers, shape (rows), within `scratch`. Shape: keys (rows).
// REQUIRES: keys in [0, keys_end).
const int32_t* SortRows(Stream stream, int64_t rows, int64_t keys_end, const int32_t* keys, int32_t* scratch);

}  // namespace ringmaster::cuda::kernels
