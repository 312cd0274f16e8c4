// SPDX-License-Identifier: Apache-2.0

// Conversion from float to bfloat16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// y = bfloat16(x), rounded to nearest even. Shape: x, y (n).
void ToBf16(Stream stream, int64_t n, const float* x, Bf16* y);

}  // namespace ringmaster::cuda::kernels
