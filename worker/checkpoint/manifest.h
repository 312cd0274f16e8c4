// SPDX-License-Identifier: Apache-2.0

// The MANIFEST of a checkpoint: which arrays there are, in which chunks, with which checksums.
//
//   {"hash":"<16 hex digits>","manifest":<body>}\n
//
// The hash is xxh3-64 of the body's bytes as they stand, so any change of any byte is noticed. Pure
// functions; the parser takes whatever a broken disk gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace ringmaster::checkpoint {

inline constexpr int64_t kFormat = 1;
inline constexpr size_t kMaxManifestBytes = size_t{256} << 20;

struct Chunk {
  std::string file;   // ChunkName
  int64_t bytes = 0;  // at least 1
  uint64_t hash = 0;  // xxh3-64
  bool operator==(const Chunk&) const = default;
};

struct ArrayEntry {
  std::string name;
  std::string type;   // "f32" | "i32"
  int64_t bytes = 0;  // the sum over its chunks, which follow each other in this order
  std::vector<Chunk> chunks;
  bool operator==(const ArrayEntry&) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::string model;
  Json meta;
  std::vector<ArrayEntry> arrays;
  bool operator==(const Manifest&) const = default;
};

bool IsArrayType(std::string_view type);

std::string EncodeManifest(const Manifest& manifest);

// kCorrupt for what was damaged, kInvalid for what another version of this program wrote.
Result<Manifest> ParseManifest(std::string_view text);

// A body with its hash around it; the fuzzer gets past the hash with it.
std::string SealManifest(std::string_view body);

}  // namespace ringmaster::checkpoint
