// SPDX-License-Identifier: Apache-2.0

#include <bit>

#include "base/check.h"
#include "base/rng.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {
namespace {

constexpr uint64_t kRounds = 8;

// A balanced Feistel network over 2 * half_bits bits: a bijection whatever the round function is.
uint64_t Feistel(uint64_t key, int half_bits, uint64_t value) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = Mix64(Mix64(key ^ round) ^ right) & mask;
    const uint64_t next = left ^ mixed;
    left = right;
    right = next;
  }
  return (left << half_bits) | right;
}

}  // namespace

int64_t Permute(uint64_t seed, int64_t epoch, int64_t n, int64_t position) {
  CHECK(n >= 1 && n <= int64_t{1} << 62 && position >= 0 && position < n, "position {} of {}", position, n);
  if (n == 1) return 0;
  const uint64_t key = Mix64(Mix64(seed) ^ static_cast<uint64_t>(epoch));
  const int half_bits = (static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1))) + 1) / 2;
  // Cycle walking: repeat while the value is not below n, which gives a bijection of [0, n). The network's
  // domain is below 4 n, so this takes fewer than four rounds on average.
  auto value = static_cast<uint64_t>(position);
  do {
    value = Feistel(key, half_bits, value);
  } while (value >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(value);
}

}  // namespace ringmaster::data
