// SPDX-License-Identifier: Apache-2.0

// Fingerprint computes a number that changes when data changes. Value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ringmaster::data {

class Fingerprint {
 public:
  void Add(std::string_view text);
  void Add(int64_t number);
  void Add(std::span<const std::byte> bytes);
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

// A range of bytes.
struct Piece {
  uint64_t offset = 0;
  size_t bytes = 0;
  bool operator==(const Piece&) const = default;
};

// Returns the pieces of `bytes` bytes that identify them, in the order in which a fingerprint takes them:
// both ends, then pieces spaced evenly between them; all of a small number of bytes. Reading all of a large
// file at every start would be too slow.
std::vector<Piece> SamplePieces(uint64_t bytes);

// Returns the hash of the content of `bytes` bytes, from the hashes of blocks of them, in order.
// hash(offset, size) returns a Result<uint64_t>.
inline constexpr uint64_t kContentBlock = uint64_t{1} << 20;
template <class HashBlock>
Result<uint64_t> HashBlocks(uint64_t bytes, const HashBlock& hash) {
  Fingerprint all;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t block = bytes - done < kContentBlock ? bytes - done : kContentBlock;
    RM_ASSIGN(const uint64_t value, hash(done, static_cast<size_t>(block)));
    all.Add(static_cast<int64_t>(value));
    done += block;
  }
  return all.value();
}

}  // namespace ringmaster::data
