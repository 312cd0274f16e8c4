// SPDX-License-Identifier: Apache-2.0

#include "worker/data/idx.h"

#include <algorithm>

#include "worker/data/gzip.h"

namespace ringmaster::data {
namespace {

constexpr size_t kMaxDims = (kIdxStart - 4) / 4;
constexpr int64_t kMaxElements = int64_t{1} << 40;

Error Truncated(uint64_t want, uint64_t have) {
  return {Code::kCorrupt, fmt::format("is truncated: its header says {} bytes, it has {}", want, have)};
}

Error TooLong() { return {Code::kCorrupt, "has more data than its header says"}; }

}  // namespace

Result<IdxHeader> ParseIdxHeader(std::span<const std::byte> available) {
  const auto at = [&](size_t i) { return std::to_integer<uint32_t>(available[i]); };
  if (available.empty()) return Error{Code::kCorrupt, "is empty"};
  if (available.size() < 4) return Error{Code::kCorrupt, "is truncated: it ends within the header"};
  if (at(0) != 0 || at(1) != 0) {
    return Error{Code::kInvalid,
                 fmt::format("is not an IDX file (it begins with {:02x} {:02x} {:02x} {:02x})", at(0), at(1),
                             at(2), at(3))};
  }
  if (at(2) != 8) {
    return Error{
        Code::kInvalid,
        fmt::format("is an IDX file of type 0x{:02x}; only unsigned bytes (0x08) are supported", at(2))};
  }
  const size_t dims = at(3);
  if (dims == 0 || dims > kMaxDims) {
    return Error{Code::kInvalid, fmt::format("has {} dimensions; 1 to {} are supported", dims, kMaxDims)};
  }
  IdxHeader header;
  header.bytes = 4 + 4 * dims;
  if (available.size() < header.bytes)
    return Error{Code::kCorrupt, "is truncated: it ends within the header"};
  header.elements = 1;
  for (size_t d = 0; d < dims; ++d) {
    const size_t i = 4 + 4 * d;
    const int64_t size = at(i) << 24 | at(i + 1) << 16 | at(i + 2) << 8 | at(i + 3);
    if (size == 0) return Error{Code::kInvalid, "has no elements: a dimension is 0"};
    if (header.elements > kMaxElements / size)
      return Error{Code::kInvalid, "says that it has more than 2^40 bytes"};
    header.dims.push_back(size);
    header.elements *= size;
  }
  return header;
}

Result<IdxHeader> CheckIdx(std::span<const std::byte> start, uint64_t bytes) {
  RM_ASSIGN(IdxHeader header, ParseIdxHeader(start));
  const auto elements = static_cast<uint64_t>(header.elements);
  const uint64_t have = bytes - header.bytes;
  if (have < elements) return Truncated(elements, have);
  if (have > elements) return TooLong();
  return header;
}

Result<IdxArray> ParseGzippedIdx(std::span<const std::byte> file) {
  RM_ASSIGN(GzipReader reader, GzipReader::Create(file));
  std::vector<std::byte> head(kIdxStart);
  RM_ASSIGN(const size_t got, reader.Read(head));
  head.resize(got);
  RM_ASSIGN(IdxHeader header, ParseIdxHeader(head));
  const auto elements = static_cast<size_t>(header.elements);
  if (elements / kMaxExpansion > file.size()) {
    return Error{Code::kCorrupt,
                 fmt::format("is truncated or damaged: its header says {} bytes, more than {} "
                             "compressed bytes can hold",
                             elements, file.size())};
  }
  if (header.elements > kMaxGzippedIdx) {
    return Error{Code::kInvalid, fmt::format("has {} bytes, too many to decompress into memory; decompress "
                                             "the file on disk (gunzip)",
                                             elements)};
  }
  IdxArray array;
  array.dims = std::move(header.dims);
  array.values.assign(head.begin() + static_cast<std::ptrdiff_t>(header.bytes), head.end());
  // Read in growing pieces, so that memory is allocated only for actual data, and one byte more than the
  // header says, to check that nothing follows.
  bool more = true;
  while (more && array.values.size() <= elements) {
    const size_t have = array.values.size();
    const size_t want = std::min(elements + 1, std::max(have * 2, size_t{1} << 20));
    array.values.resize(want);
    RM_ASSIGN(const size_t came, reader.Read(std::span(array.values).subspan(have)));
    array.values.resize(have + came);
    more = have + came == want;
  }
  if (array.values.size() < elements) return Truncated(elements, array.values.size());
  if (array.values.size() > elements) return TooLong();
  return array;
}

}  // namespace ringmaster::data
