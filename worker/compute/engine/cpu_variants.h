// SPDX-License-Identifier: Apache-2.0

// Loops that are compiled once per instruction set: worker/compute/numerics and optimizer write a loop once
// as an RM_BODY function and inline it into one wrapper function per instruction set, where the compiler
// vectorises it:
//
//   RM_BODY void ScaleLoop(int64_t n, float* x) { ... }
//   void ScalePlain(int64_t n, float* x) { ScaleLoop(n, x); }
//   __attribute__((target("avx2"))) void ScaleAvx2(int64_t n, float* x) { ScaleLoop(n, x); }
//
// The variants give equal bits as long as the loop holds only operations that are exact or correctly rounded
// in every instruction set (single IEEE operations, rint, integer sums). The build disables contraction.
#pragma once

#define RM_BODY __attribute__((always_inline)) static inline

// Placed before a loop whose iterations do not depend on each other, also when input and output are the same
// memory. Clang checks that at run time.
#if defined(__clang__)
#define RM_NO_OVERLAP
#else
#define RM_NO_OVERLAP _Pragma("GCC ivdep")
#endif

// Attributes of a variant.
#define RM_TARGET_SSE41 __attribute__((target("sse4.1")))
#define RM_TARGET_AVX2 __attribute__((target("avx2")))
#if defined(__clang__)
#define RM_TARGET_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw")))
#else
#define RM_TARGET_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")))
#endif
