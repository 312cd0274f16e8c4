// SPDX-License-Identifier: Apache-2.0

// The IDX format of the MNIST family: two zero bytes, a type byte (8: unsigned bytes), the number of
// dimensions, each dimension as a big-endian 32-bit number, then the data. Plain or gzipped. Pure functions;
// the bytes are untrusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace ringmaster::data {

struct IdxHeader {
  std::vector<int64_t> dims;  // each at least 1
  size_t bytes = 0;           // size of the header
  int64_t elements = 0;       // the product of dims
  bool operator==(const IdxHeader&) const = default;
};

// Parses the header from the first bytes of a file, or the whole file. Errors: kInvalid for another kind of
// file; kCorrupt when it is truncated.
Result<IdxHeader> ParseIdxHeader(std::span<const std::byte> available);

struct IdxArray {
  std::vector<int64_t> dims;
  std::span<const std::byte> values;  // refers to `owned` or to the bytes of the file
  std::vector<std::byte> owned;
};

// Parses a whole file, gzipped or not. Errors: as ParseIdxHeader, and kCorrupt when the data is not exactly
// as long as the header says.
Result<IdxArray> ParseIdx(std::span<const std::byte> file);

}  // namespace ringmaster::data
