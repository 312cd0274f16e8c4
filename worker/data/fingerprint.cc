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
void Fingerprint::Mix(std::span<const std::byte> bytes) { value_ = Hash64(bytes, value_ + bytes.size() + 1); }

void Fingerprint::Add(std::string_view text) { Mix(std::as_bytes(std::span(text.data(), text.size()))); }

void Fingerprint::Add(int64_t number) { Mix(std::as_bytes(std::span(&number, 1))); }

void Fingerprint::AddSampled(std::span<const std::byte> bytes) {
  Add(static_cast<int64_t>(bytes.size()));
  if (bytes.size() <= 2 * kEnd + kPieces * kPiece) return Mix(bytes);
  Mix(bytes.first(kEnd));
  Mix(bytes.last(kEnd));
  const size_t stride = (bytes.size() - 2 * kEnd - kPiece) / (kPieces - 1);
  for (size_t i = 0; i < kPieces; ++i) Mix(bytes.subspan(kEnd + i * stride, kPiece));
}

}  // namespace ringmaster::data
