// SPDX-License-Identifier: Apache-2.0

// Products of small matrices by one warp on tensor cores (mma.sync m16n8k16, every GPU since sm_80):
// bfloat16 operands, float sums. The elements of a matrix are distributed over the lanes. With g = lane / 4
// and t = lane % 4, a lane holds (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//
//   a, 16 x 16   a[0] (g, 2t), a[1] (g + 8, 2t), a[2] (g, 2t + 8), a[3] (g + 8, 2t + 8), each with the
//                element to the right
//   b, 16 x 8    b0 (2t, g), b1 (2t + 8, g), each with the element below
//   d, 16 x 8    d[0], d[1] (g, 2t), (g, 2t + 1); d[2], d[3] the same of row g + 8
//
// The emulation of CUDA in tests has its own versions of these three functions. Device code.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/launch.h"

#if defined(__CUDACC__)

namespace ringmaster::cuda::kernels {

// d += a b
__device__ __forceinline__ void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four 8 x 8 matrices from shared memory. Lane l passes the address of row l % 8 of matrix l / 8,
// sixteen bytes aligned to sixteen; to[i] gets the elements (g, 2t) and (g, 2t + 1) of matrix i.
__device__ __forceinline__ void LoadMatrices(uint32_t (&to)[4], const Bf16* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// Loads the transposes: to[i] gets the elements (2t, g) and (2t + 1, g).
__device__ __forceinline__ void LoadTransposed(uint32_t (&to)[4], const Bf16* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

}  // namespace ringmaster::cuda::kernels

#endif
