// SPDX-License-Identifier: Apache-2.0

// How the algorithms in which every rank owns a share of a buffer cut it: into one share per rank, and each
// share into segments of one message. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringmaster::fabric {

struct Shares {
  std::span<std::byte> data;
  size_t share = 0;    // bytes; the last shares may be shorter, or empty
  size_t segment = 0;  // bytes; the last segments of a share may be shorter, or empty
  uint32_t segments = 0;

  std::span<std::byte> Segment(int owner, uint32_t g) const;
};

// Returns the size of a part when `bytes` are cut into `parts` at cache lines.
size_t PartBytes(size_t bytes, size_t parts);

// Cuts each share into equal segments of at most `longest` bytes (a multiple of 64), and into at least two if
// they stay above `shortest`: one is in flight while the other is summed.
Shares Cut(std::span<std::byte> data, size_t share, size_t longest, size_t shortest);

}  // namespace ringmaster::fabric
