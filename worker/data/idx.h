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

// Parses the header of an uncompressed file of `bytes` bytes, which begins with `start`. Errors: as
// ParseIdxHeader, and kCorrupt when the data is not exactly as long as the header says.
Result<IdxHeader> CheckIdx(std::span<const std::byte> start, uint64_t bytes);

struct IdxArray {
  std::vector<int64_t> dims;
  std::vector<std::byte> values;
};

// The size of the largest header.
inline constexpr size_t kIdxStart = 4 + 4 * 4;
// Larger arrays are not decompressed into memory.
inline constexpr int64_t kMaxGzippedIdx = int64_t{1} << 33;

// Parses a whole gzipped file. Errors: as CheckIdx.
Result<IdxArray> ParseGzippedIdx(std::span<const std::byte> file);

}  // namespace ringmaster::data
