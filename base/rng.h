// SPDX-License-Identifier: Apache-2.0

// Counter-based random numbers: every value is a pure function of its keys, so it does not depend on which
// worker asks for it, or when.
#pragma once

#include <cstdint>

namespace ringmaster {

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection of 64 bits that mixes well.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Returns 64 random bits for up to four keys (for example seed, step, micro-batch, element).
constexpr uint64_t KeyedRandom(uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0) {
  return Mix64(Mix64(Mix64(Mix64(a) ^ b) ^ c) ^ d);
}

// A seeded stream of random numbers for simulators, jitter and tests. Not thread-safe.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    const uint64_t result = Mix64(state_);
    state_ += 0x9e3779b97f4a7c15ULL;
    return result;
  }
  // Uniform in [0, bound). REQUIRES: bound > 0. The bias of the modulo is below 2^-32 for every bound in use.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // Uniform in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  bool Chance(double probability) { return Uniform() < probability; }

 private:
  uint64_t state_;
};

}  // namespace ringmaster
