// SPDX-License-Identifier: Apache-2.0

// ContentHasher computes Dataset::HashContent: a hash over numbers, names and whole ranges of files. A range
// is hashed in blocks, and then the hashes of the blocks, so that a file in memory and the same file on a
// disk have the same hash. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/data/dataset.h"
#include "worker/data/file_pool.h"
#include "worker/data/fingerprint.h"
#include "worker/data/hash_cache.h"

namespace ringmaster::data {

class ContentHasher {
 public:
  // Sets the counter to the size of the files that are not in memory. `fingerprint`: of the data's samples.
  // REQUIRES: `pool` and what `options` refers to outlive the hasher.
  ContentHasher(const FilePool& pool, const ContentHashOptions& options, uint64_t fingerprint);

  void Add(std::string_view text) { hash_.Add(text); }
  void Add(int64_t number) { hash_.Add(number); }
  // Adds the size and the content of bytes in memory.
  void AddBytes(std::span<const std::byte> bytes);
  // Adds the size and the content of a range of a file; the size only if the files are too large to read. A
  // storage that fails is read again for two minutes. Errors: as FilePool::View; kCancelled.
  Status AddRange(size_t file, uint64_t offset, uint64_t bytes);

  ContentHash value() const { return {hash_.value(), bytes_read_, whole_}; }

 private:
  Result<uint64_t> HashRange(size_t file, uint64_t offset, uint64_t bytes);
  Result<uint64_t> ReadRange(size_t file, uint64_t offset, uint64_t bytes);
  Result<std::span<const std::byte>> ReadBlock(size_t file, uint64_t offset, size_t bytes);
  bool cancelled() const;
  void Count(int64_t bytes) const;

  const FilePool& pool_;
  const ContentHashOptions options_;
  const HashCache cache_;
  Fingerprint hash_;
  uint64_t bytes_read_ = 0;
  bool whole_ = true;
  std::vector<std::byte> buffer_;
};

}  // namespace ringmaster::data
