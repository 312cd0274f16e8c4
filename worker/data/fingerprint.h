// SPDX-License-Identifier: Apache-2.0

// Fingerprint computes a number that changes when data changes. Value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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

}  // namespace ringmaster::data
