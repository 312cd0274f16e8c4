// SPDX-License-Identifier: Apache-2.0

// What choices are measured on: random numbers in [-1, 1). Zeros would be quicker than any real ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

inline int64_t BytesOf(DType type) { return type == DType::kBf16 ? 2 : 4; }

// Waits for the stream.
Result<Buffer<std::byte>> RandomMatrix(Stream stream, DType type, int64_t elements, uint64_t seed);

}  // namespace ringmaster::cuda
