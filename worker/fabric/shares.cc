// SPDX-License-Identifier: Apache-2.0

#include "worker/fabric/shares.h"

#include <algorithm>

namespace ringmaster::fabric {
namespace {

constexpr size_t kLineBytes = 64;

}  // namespace

std::span<std::byte> Shares::Segment(int owner, uint32_t g) const {
  const size_t end_of_share = std::min(data.size(), share * (owner + 1));
  const size_t begin = std::min(end_of_share, share * owner + segment * g);
  return data.subspan(begin, std::min(segment, end_of_share - begin));
}

size_t PartBytes(size_t bytes, size_t parts) {
  return (bytes + parts * kLineBytes - 1) / (parts * kLineBytes) * kLineBytes;
}

Shares Cut(std::span<std::byte> data, size_t share, size_t longest, size_t shortest) {
  const size_t fewest = share >= 2 * shortest ? 2 : 1;
  const size_t segments = std::max(fewest, (share + longest - 1) / longest);
  return {data, share, std::max(kLineBytes, PartBytes(share, segments)), static_cast<uint32_t>(segments)};
}

}  // namespace ringmaster::fabric
