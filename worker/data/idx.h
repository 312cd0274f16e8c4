// SPDX-License-Identifier: Apache-2.0

// The IDX format of the MNIST family: two zero bytes, a type byte (8: unsigned bytes), the number of
// dimensions, each dimension as a big-endian 32-bit number, then the data. Plain or gzipped. Pure functions
// of bytes that may be hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace ringmaster::data {

struct IdxHeader {
  std::vector<int64_t> dims;  // each at least 1
  size_t bytes = 0;           // of the header itself
  int64_t elements = 0;       // the product of dims
  bool operator==(const IdxHeader&) const = default;
};

// From the file's first bytes; `available` may be the whole file. kInvalid for another kind of file, kCorrupt
// when it breaks off.
Result<IdxHeader> ParseIdxHeader(std::span<const std::byte> available);

struct IdxArray {
  std::vector<int64_t> dims;
  std::span<const std::byte> values;  // into `owned`, or into the file's bytes
  std::vector<std::byte> owned;
};

// A whole file, gzipped or not. The data must be exactly as long as the header says.
Result<IdxArray> ParseIdx(std::span<const std::byte> file);

}  // namespace ringmaster::data
