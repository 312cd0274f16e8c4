// SPDX-License-Identifier: Apache-2.0

// HashChunks of base/hash.h on device memory: only eight bytes per chunk leave the device. The bits are those
// of XXH3_64bits (Collet, xxHash 0.8, default secret, seed 0).
#pragma once

#include <cstdint>

#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// Hashes `blocks` blocks of engine::kBlock floats in chunks of kHashChunkBytes. REQUIRES: `values` is a
// multiple of 8. Shape: values (blocks * engine::kBlock); hashes (HashChunkCount of its bytes).
void HashChunks(Stream stream, int64_t blocks, const float* values, uint64_t* hashes);

}  // namespace ringmaster::cuda::kernels
