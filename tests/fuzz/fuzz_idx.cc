// SPDX-License-Identifier: Apache-2.0

// Fuzzes the IDX parser, plain and gzipped: no input may crash it or make it allocate more memory than its
// size justifies.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "worker/data/gzip.h"
#include "worker/data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  if (!ringmaster::data::LooksLikeGzip(file)) {
    const auto header =
        ringmaster::data::CheckIdx(file.first(std::min(size, ringmaster::data::kIdxStart)), size);
    if (header.ok()) CHECK(header->bytes + static_cast<size_t>(header->elements) == size);
    return 0;
  }
  const auto parsed = ringmaster::data::ParseGzippedIdx(file);
  if (!parsed.ok()) {
    CHECK(!parsed.error().message.empty());
    return 0;
  }
  int64_t elements = 1;
  for (const int64_t dim : parsed->dims) {
    CHECK(dim >= 1);
    elements *= dim;
  }
  CHECK(static_cast<int64_t>(parsed->values.size()) == elements);
  CHECK(parsed->values.size() <= size * ringmaster::data::kMaxExpansion);
  unsigned sum = 0;  // every byte is readable
  for (const std::byte value : parsed->values) sum += std::to_integer<unsigned>(value);
  return sum == 0xffffffffU ? 1 : 0;
}
