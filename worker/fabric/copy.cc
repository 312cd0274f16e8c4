// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "worker/fabric/clones.h"

namespace ringmaster::fabric {
namespace {

// At any address, of any type.
typedef uint64_t LooseWord __attribute__((aligned(1), may_alias));

constexpr size_t kLine = 64;
constexpr size_t kShort = 256;  // up to here the call of memcpy inlines or takes a few instructions
constexpr size_t kAhead = 16;   // lines

// Requests a line for writing. A peer has read the staging area, so its lines are shared, and a store to one
// waits until the peer's cache has dropped it.
inline __attribute__((always_inline)) void Own(std::byte* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*line));  // does nothing on CPUs without it
#else
  __builtin_prefetch(line, 1);
#endif
}

// The words of a line are loaded before the first is stored: the compiler turns them into vectors, and does
// not recognise the loop as a memcpy.
RM_CLONES void CopyLines(std::byte* dst, const std::byte* src, size_t lines) {
  for (size_t i = 0; i < std::min(kAhead, lines); ++i) Own(dst + i * kLine);
  for (size_t i = 0; i < lines; ++i, dst += kLine, src += kLine) {
    if (i + kAhead < lines) Own(dst + kAhead * kLine);
    // Not `auto`: it would drop the attributes of the type.
    LooseWord* const to = reinterpret_cast<LooseWord*>(dst);
    const LooseWord* const from = reinterpret_cast<const LooseWord*>(src);
    const uint64_t a = from[0], b = from[1], c = from[2], d = from[3];
    const uint64_t e = from[4], f = from[5], g = from[6], h = from[7];
    to[0] = a;
    to[1] = b;
    to[2] = c;
    to[3] = d;
    to[4] = e;
    to[5] = f;
    to[6] = g;
    to[7] = h;
  }
}

}  // namespace

void CopyBytes(std::byte* dst, const std::byte* src, size_t bytes) {
  if (bytes == 0) return;  // memcpy takes no null pointers, and an empty span may have one
  if (bytes <= kShort) {
    std::memcpy(dst, src, bytes);
    return;
  }
  // No store crosses a cache line.
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(dst) % kLine) % kLine;
  std::memcpy(dst, src, head);
  const size_t lines = (bytes - head) / kLine;
  CopyLines(dst + head, src + head, lines);
  const size_t done = head + lines * kLine;
  std::memcpy(dst + done, src + done, bytes - done);
}

}  // namespace ringmaster::fabric
