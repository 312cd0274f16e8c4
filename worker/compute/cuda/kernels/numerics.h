// SPDX-License-Identifier: Apache-2.0

// The sums of gradients of worker/compute/numerics/exact.h on device memory, with the same bits. `blocks` are
// blocks of engine::kBlock elements; exponents and maxima have one entry per block, and exponents are valid
// ones.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// numerics::Accumulate.
void Accumulate(Stream stream, int64_t blocks, const float* grads, const int32_t* exponents, int quantum_bits,
                bool overwrite, int32_t* sums, int32_t* maxima);

// numerics::Decode; out may be the memory of sums.
void Decode(Stream stream, int64_t blocks, const int32_t* sums, const int32_t* exponents, int quantum_bits,
            double scale, float* out);

// *norm = numerics::Norm. `scratch` holds NormScratch doubles.
int64_t NormScratch(int64_t count);
void Norm(Stream stream, int64_t count, const float* values, double* norm, double* scratch);

// Fast numerics: sums = values or sums += values, and x *= factor; one float operation per element, as the
// step loop does on the CPU.
void AddFloats(Stream stream, int64_t count, const float* values, bool overwrite, float* sums);
void ScaleFloats(Stream stream, int64_t count, float factor, const float* x, float* out);

}  // namespace ringmaster::cuda::kernels
