// SPDX-License-Identifier: Apache-2.0

#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace ringmaster {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string HashHex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace ringmaster
