// SPDX-License-Identifier: Apache-2.0

// Random operands for measurements: values in [-1, 1). With zeros the measured
// durations would be too short.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

inline int64_t BytesOf(DType type) { return type == DType::kBf16 ? 2 : 4; }

// Returns a matrix of random values. Blocks until the stream is idle.
Result<Buffer<std::byte>> RandomMatrix(Stream stream, DType type, int64_t elements, uint64_t seed);

}  // namespace ringmaster::cuda
