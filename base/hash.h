// SPDX-License-Identifier: Apache-2.0

// xxHash3 (XXH3, 64 bits): checksums of checkpoint chunks, the weights hash that users compare, and the
// hashes by which members compare their state. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ringmaster {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed = 0);

// Large arrays are hashed in chunks, so that threads and GPUs hash them in parallel, each chunk when it is in
// a cache. The last chunk may be shorter.
inline constexpr size_t kHashChunkBytes = size_t{1} << 16;
constexpr size_t HashChunkCount(size_t bytes) { return (bytes + kHashChunkBytes - 1) / kHashChunkBytes; }

// Sets hashes[i] to the Hash64 of chunk i. REQUIRES: hashes.size() == HashChunkCount(bytes.size()).
void HashChunks(std::span<const std::byte> bytes, std::span<uint64_t> hashes);

// Returns sixteen hexadecimal digits, the form used in summaries and logs.
std::string HashHex(uint64_t hash);

template <class T>
std::span<const std::byte> AsBytes(std::span<const T> values) {
  return std::as_bytes(values);
}

}  // namespace ringmaster
