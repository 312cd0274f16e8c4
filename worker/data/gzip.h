// SPDX-License-Identifier: Apache-2.0

// Incremental decompression of untrusted input: memory use is bounded by the size of the input.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"

namespace ringmaster::data {

bool LooksLikeGzip(std::span<const std::byte> bytes);

// An upper bound for deflate's expansion, including the header. A file that claims a larger content is
// invalid.
inline constexpr size_t kMaxExpansion = 1040;

class GzipReader {
 public:
  // REQUIRES: `compressed` outlives the reader.
  static Result<GzipReader> Create(std::span<const std::byte> compressed);
  GzipReader(GzipReader&&) noexcept;
  GzipReader& operator=(GzipReader&&) noexcept;
  ~GzipReader();

  // Fills `out` and returns the number of bytes: less than out.size() only at the end of the data. Errors:
  // kCorrupt when the stream is truncated, has a wrong checksum, or is followed by other bytes.
  Result<size_t> Read(std::span<std::byte> out);

 private:
  struct Stream;
  explicit GzipReader(std::unique_ptr<Stream> stream);
  std::unique_ptr<Stream> stream_;
};

}  // namespace ringmaster::data
