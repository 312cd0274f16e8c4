// SPDX-License-Identifier: Apache-2.0

// The arithmetic of reductions. Sources are added in the given order, element by element, independent of
// block size and instruction set, so float results are reproducible. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "worker/fabric/communicator.h"

namespace ringmaster::fabric {

enum class Element : uint8_t { kInt32, kFloat };

inline constexpr size_t kElementBytes = 4;  // of either type

// An element type and an operation.
struct Combiner {
  Element element = Element::kInt32;
  ReduceOp op = ReduceOp::kSum;

  // dst = sources[0] + sources[1] + ... over `count` elements, at any alignment. REQUIRES: at least one
  // source; dst equals a source exactly or does not overlap it.
  void Combine(std::byte* dst, std::span<const std::byte* const> sources, size_t count) const;

  // dst = dst + src.
  void Accumulate(std::byte* dst, const std::byte* src, size_t count) const;

  bool operator==(const Combiner&) const = default;
};

}  // namespace ringmaster::fabric
