// SPDX-License-Identifier: Apache-2.0

// Shareable memory: what we own (memfd) and what we map of others (read-only). Movable handles; each unmaps
// what it mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "worker/fabric/address.h"

namespace ringmaster::fabric::shm {

// A mapping that ends with its handle.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

struct OwnMemory {
  Fd fd;
  Mapping mapping;
};

// Zeroed, page-aligned, every page there. kExhausted, with what was asked and what is left, when it cannot be
// had.
Result<OwnMemory> AllocateShared(size_t bytes, std::string_view label);

// Maps /proc/<pid>/fd/<fd> of a same-host process, read-only. kUnavailable when the process or the memory is
// gone.
Result<Mapping> MapPeer(int64_t pid, const Segment& segment);

}  // namespace ringmaster::fabric::shm
