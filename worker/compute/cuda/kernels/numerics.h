// SPDX-License-Identifier: Apache-2.0

// The exact numerics of worker/compute/numerics/exact.h on device memory, with the same bits.
//
// Shapes: out (blocks * engine::kBlock); sums (blocks, limbs, engine::kBlock); exponents, maxima (blocks).
// REQUIRES: exponents are valid; limbs is 1 or 2.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// numerics::Accumulate of `count` gradients, followed by zeros up to the end of the last block. `grads` may
// have any alignment of a float.
void Accumulate(Stream stream, int64_t blocks, const float* grads, int64_t count, const int32_t* exponents,
                int quantum_bits, int limbs, bool overwrite, int32_t* sums, int32_t* maxima);

// numerics::Decode; out may be the front of the memory of sums.
void Decode(Stream stream, int64_t blocks, const int32_t* sums, const int32_t* exponents, int quantum_bits,
            int limbs, double scale, float* out);

// *norm = numerics::Norm. `scratch` holds NormScratch doubles.
int64_t NormScratch(int64_t count);
void Norm(Stream stream, int64_t count, const float* values, double* norm, double* scratch);

// Fast numerics: sums = values with `overwrite`, else sums += values; out = x * factor. One float operation
// per element, as on the CPU. Shape of each: (count).
void AddFloats(Stream stream, int64_t count, const float* values, bool overwrite, float* sums);
void ScaleFloats(Stream stream, int64_t count, float factor, const float* x, float* out);

}  // namespace ringmaster::cuda::kernels
