// SPDX-License-Identifier: Apache-2.0

// The MANIFEST of a checkpoint: its arrays, their chunks, and the checksums.
//
//   {"hash":"<16 hex digits>","manifest":<body>}\n
// The hash is xxh3-64 of the body's exact bytes, so a change of any byte is detected. Pure functions; the
// parser's input is untrusted.
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
  std::string type;   // of an element (ElementBytes)
  int64_t bytes = 0;  // the sum over its chunks; the chunks are in order
  std::vector<Chunk> chunks;
  bool operator==(const ArrayEntry&) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::string model;
  std::string state = {};  // Snapshot::state; empty: unknown
  Json meta;
  std::vector<ArrayEntry> arrays;
  bool operator==(const Manifest&) const = default;
};

// Returns the bytes of one element of a type: bool, u8 to u64, i8 to i64, f8_e4m3, f8_e5m2, f8_e8m0, f16,
// bf16, f32, f64, c64, c128; 0: unknown.
size_t ElementBytes(std::string_view type);

std::string EncodeManifest(const Manifest& manifest);

// Errors: kCorrupt for a damaged manifest; kInvalid for one of another version of this program.
Result<Manifest> ParseManifest(std::string_view text);

// Adds the hash to a body. The fuzzer uses it to get past the hash check.
std::string SealManifest(std::string_view body);

}  // namespace ringmaster::checkpoint
