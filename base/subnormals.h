// SPDX-License-Identifier: Apache-2.0

// How the calling thread computes with subnormal numbers (below 2^-126 in float). They take x86 CPUs a
// hundred times as long, so trainers flush them to zero inside a micro-batch. What follows a micro-batch
// keeps them, as IEEE 754 defines: flushing differs between CPUs and GPUs, also in which results count as
// subnormal.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace ringmaster {

#if defined(__SSE2__)
// FTZ (results) and DAZ (operands).
inline constexpr unsigned kFlushSubnormals = 0x8040;
#endif

// Treats subnormal operands and results as zero, on this thread and on those that it creates from now on.
// Does nothing on other CPUs than x86.
inline void FlushSubnormals() {
#if defined(__SSE2__)
  _mm_setcsr(_mm_getcsr() | kFlushSubnormals);
#endif
}

// Computes with subnormals while in scope. Work that other threads do in the meantime is not affected.
class KeepSubnormals {
 public:
#if defined(__SSE2__)
  KeepSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ & ~kFlushSubnormals); }
  ~KeepSubnormals() { _mm_setcsr((_mm_getcsr() & ~kFlushSubnormals) | (before_ & kFlushSubnormals)); }
#else
  KeepSubnormals() = default;
  ~KeepSubnormals() {}  // a scope, also where it does nothing
#endif
  KeepSubnormals(const KeepSubnormals&) = delete;
  KeepSubnormals& operator=(const KeepSubnormals&) = delete;

#if defined(__SSE2__)
 private:
  const unsigned before_;
#endif
};

}  // namespace ringmaster
