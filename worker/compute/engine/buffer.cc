// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace ringmaster::engine {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kHugeFromBytes = 2 * kHugePageBytes;

}  // namespace

void* TouchedMemory(size_t bytes) {
  const bool huge = bytes >= kHugeFromBytes;
  const size_t alignment = huge ? kHugePageBytes : kLineBytes;
  const size_t size = (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, size) != 0) throw std::bad_alloc();
  // A hint for the whole huge pages within the memory: matrix products walk across rows, one page per row.
  if (huge) ::madvise(memory, size / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  std::memset(memory, 0, size);
  return memory;
}

}  // namespace ringmaster::engine
