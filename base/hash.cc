// SPDX-License-Identifier: Apache-2.0

#include "base/hash.h"

#include <fmt/format.h>
#if defined(__x86_64__)
// The same functions, compiled for AVX2 and AVX-512 as well: three times faster than SSE2 in a cache.
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include <algorithm>

#include "base/check.h"

namespace ringmaster {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

void HashChunks(std::span<const std::byte> bytes, std::span<uint64_t> hashes) {
  CHECK(hashes.size() == HashChunkCount(bytes.size()));
  for (size_t i = 0; i < hashes.size(); ++i) {
    const size_t begin = i * kHashChunkBytes;
    hashes[i] = Hash64(bytes.subspan(begin, std::min(kHashChunkBytes, bytes.size() - begin)));
  }
}

std::string HashHex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace ringmaster
