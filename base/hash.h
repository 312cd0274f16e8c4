// SPDX-License-Identifier: Apache-2.0

// xxHash3 (XXH3, 64 bits): checksums of checkpoint chunks, and the weights hash that users compare. Pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ringmaster {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed = 0);

// Returns sixteen hexadecimal digits, the form used in summaries and logs.
std::string HashHex(uint64_t hash);

template <class T>
std::span<const std::byte> AsBytes(std::span<const T> values) {
  return std::as_bytes(values);
}

}  // namespace ringmaster
