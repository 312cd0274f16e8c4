// SPDX-License-Identifier: Apache-2.0

// Shareable memory: own memory (memfd) and read-only mappings of peers' memory. Movable handles; each unmaps
// its mapping.
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

// Owns a mapping.
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

// Returns zeroed, page-aligned memory with every page allocated. Errors: kExhausted, with the requested and
// the available bytes.
Result<OwnMemory> AllocateShared(size_t bytes, std::string_view label);

// Maps /proc/<pid>/fd/<fd> of a same-host process, read-only. Errors: kUnavailable when the process or the
// memory is gone.
Result<Mapping> MapPeer(int64_t pid, const Segment& segment);

}  // namespace ringmaster::fabric::shm
