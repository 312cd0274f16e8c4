// SPDX-License-Identifier: Apache-2.0

#include "base/hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace ringmaster {
namespace {

// Checkpoints and summaries of earlier builds contain such hashes: they are those of xxHash on every CPU.
TEST(Hash, IsXxh3) {
  EXPECT_EQ(HashHex(Hash64({})), "2d06800538d394c2");
  std::vector<std::byte> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  EXPECT_EQ(HashHex(Hash64(bytes)), "ce29a19460ee1bfc");
  EXPECT_EQ(HashHex(Hash64(bytes, 3)), "25e83490a5e7bcc3");
}

TEST(Hash, EachChunkIsHashedAlone) {
  std::vector<std::byte> bytes(2 * kHashChunkBytes + 4096);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  ASSERT_EQ(HashChunkCount(bytes.size()), 3U);
  std::vector<uint64_t> hashes(3);
  HashChunks(bytes, hashes);
  const std::span<const std::byte> all = bytes;
  EXPECT_EQ(hashes[0], Hash64(all.first(kHashChunkBytes)));
  EXPECT_EQ(hashes[2], Hash64(all.last(4096)));
  for (const size_t changed : {size_t{0}, kHashChunkBytes, bytes.size() - 1}) {
    std::vector<std::byte> other = bytes;
    other[changed] ^= std::byte{1};
    std::vector<uint64_t> after(3);
    HashChunks(other, after);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(after[i] != hashes[i], i == changed / kHashChunkBytes);
  }
  HashChunks({}, {});
}

}  // namespace
}  // namespace ringmaster
