// SPDX-License-Identifier: Apache-2.0

#include "worker/data/fingerprint.h"

#include "base/hash.h"

namespace ringmaster::data {
namespace {

constexpr size_t kEnd = size_t{64} << 10;
constexpr size_t kPiece = size_t{4} << 10;
constexpr size_t kPieces = 32;

}  // namespace

// Chains the hash through the seed, so that the order matters.
void Fingerprint::Add(std::span<const std::byte> bytes) { value_ = Hash64(bytes, value_ + bytes.size() + 1); }

void Fingerprint::Add(std::string_view text) { Add(std::as_bytes(std::span(text.data(), text.size()))); }

void Fingerprint::Add(int64_t number) { Add(std::as_bytes(std::span(&number, 1))); }

std::vector<Piece> SamplePieces(uint64_t bytes) {
  if (bytes <= 2 * kEnd + kPieces * kPiece) return {{0, static_cast<size_t>(bytes)}};
  std::vector<Piece> pieces{{0, kEnd}, {bytes - kEnd, kEnd}};
  const uint64_t stride = (bytes - 2 * kEnd - kPiece) / (kPieces - 1);
  for (size_t i = 0; i < kPieces; ++i) pieces.push_back({kEnd + i * stride, kPiece});
  return pieces;
}

}  // namespace ringmaster::data
