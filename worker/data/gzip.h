// SPDX-License-Identifier: Apache-2.0

// Decompression in pieces, of input that may be hostile: nothing is allocated that the input did not pay for.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"

namespace ringmaster::data {

bool LooksLikeGzip(std::span<const std::byte> bytes);

// The most that deflate can expand, with room for the header: a file that claims to hold more is lying.
inline constexpr size_t kMaxExpansion = 1040;

class GzipReader {
 public:
  // `compressed` must outlive the reader.
  static Result<GzipReader> Create(std::span<const std::byte> compressed);
  GzipReader(GzipReader&&) noexcept;
  GzipReader& operator=(GzipReader&&) noexcept;
  ~GzipReader();

  // Fills `out` and returns how much of it: less than out.size() only at the end of the data. kCorrupt when
  // the stream breaks off, has a wrong checksum, or is followed by rubbish.
  Result<size_t> Read(std::span<std::byte> out);

 private:
  struct Stream;
  explicit GzipReader(std::unique_ptr<Stream> stream);
  std::unique_ptr<Stream> stream_;
};

}  // namespace ringmaster::data
