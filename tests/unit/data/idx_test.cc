// SPDX-License-Identifier: Apache-2.0

// Tests the IDX parser with valid files, damaged files and wrong headers.
#include "worker/data/idx.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "tests/unit/data/files.h"
#include "worker/data/gzip.h"

namespace ringmaster::data {
namespace {

using testing::HasSubstr;

// Parses a file, gzipped or not.
Result<IdxArray> Parse(const std::string& file) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(file.data(), file.size()));
  if (LooksLikeGzip(bytes)) return ParseGzippedIdx(bytes);
  RM_ASSIGN(const IdxHeader header, CheckIdx(bytes.first(std::min(bytes.size(), kIdxStart)), bytes.size()));
  const auto values = bytes.subspan(header.bytes);
  return IdxArray{header.dims, {values.begin(), values.end()}};
}

std::string WhyNotIdx(const std::string& file) {
  const auto parsed = Parse(file);
  return parsed.ok() ? "parsed" : parsed.error().message;
}

std::string Values(const IdxArray& array) {
  return {reinterpret_cast<const char*>(array.values.data()), array.values.size()};
}

TEST(Idx, PlainAndGzippedFilesAreEqual) {
  const std::string file = Idx({2, 3, 2}, "abcdefghijkl");
  for (const std::string& bytes : {file, Gzip(file)}) {
    const auto parsed = Parse(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->dims, (std::vector<int64_t>{2, 3, 2}));
    EXPECT_EQ(Values(*parsed), "abcdefghijkl");
  }
  // Fewer bytes than the longest header.
  const auto tiny = Parse(Gzip(Idx({1}, "x")));
  ASSERT_TRUE(tiny.ok());
  EXPECT_EQ(Values(*tiny), "x");
}

TEST(Idx, LargeGzippedFilesGrowInPieces) {
  std::string data(5 << 20, '\0');
  SplitMix64 random(1);
  for (size_t i = 0; i < data.size(); i += 7) data[i] = static_cast<char>(random.Next());
  const auto parsed = Parse(Gzip(Idx({5, 1 << 20}, data)));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_TRUE(Values(*parsed) == data);
}

TEST(Idx, ReadsSeveralGzipMembers) {
  const std::string file = Idx({4}, "abcd");
  const auto parsed = Parse(Gzip(file.substr(0, 5)) + Gzip(file.substr(5)));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(Values(*parsed), "abcd");
}

TEST(Idx, EveryTruncationIsDetected) {
  const std::string plain = Idx({2, 3}, "abcdef");
  const std::string packed = Gzip(plain);
  for (size_t n = 0; n < plain.size(); ++n) EXPECT_FALSE(Parse(plain.substr(0, n)).ok()) << n;
  for (size_t n = 0; n < packed.size(); ++n) EXPECT_FALSE(Parse(packed.substr(0, n)).ok()) << n;
}

TEST(Idx, NoBitFlipInAGzipChangesTheData) {
  const std::string good(600, 'q');
  const std::string packed = Gzip(Idx({2, 300}, good));
  // After the ten bytes of the gzip header, some of which (time, operating system) do not matter.
  for (size_t bit = 10 * 8; bit < packed.size() * 8; ++bit) {
    std::string bad = packed;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    // A few bits of the stream are padding and may change.
    const auto parsed = Parse(bad);
    EXPECT_TRUE(!parsed.ok() || Values(*parsed) == good) << "bit " << bit;
  }
}

TEST(Idx, ErrorsNameTheProblem) {
  EXPECT_THAT(WhyNotIdx(""), HasSubstr("empty"));
  EXPECT_THAT(WhyNotIdx("PK\x03\x04 and more"), HasSubstr("not an IDX file (it begins with 50 4b 03 04)"));
  EXPECT_THAT(WhyNotIdx(std::string("\0\0\x0d\x01\0\0\0\x01zzzz", 12)), HasSubstr("type 0x0d"));
  EXPECT_THAT(WhyNotIdx(std::string("\0\0\x08\x07", 4) + std::string(100, 'x')), HasSubstr("7 dimensions"));
  EXPECT_THAT(WhyNotIdx(Idx({3, 0}, "")), HasSubstr("a dimension is 0"));
  EXPECT_THAT(WhyNotIdx(Idx({3, 2}, "abcd")), HasSubstr("says 6 bytes, it has 4"));
  EXPECT_THAT(WhyNotIdx(Idx({3, 2}, "abcdefg")), HasSubstr("more data than its header says"));
  EXPECT_THAT(WhyNotIdx(Gzip(Idx({3, 2}, "abcdefg"))), HasSubstr("more data than its header says"));
  EXPECT_THAT(WhyNotIdx(Idx({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, "")), HasSubstr("2^40"));
  EXPECT_THAT(WhyNotIdx(Gzip(Idx({4}, "abcd")) + "rubbish"), HasSubstr("not gzip follow"));
}

TEST(Idx, WrongHeadersAllocateNoMemory) {
  // A hundred bytes that claim four gigabytes are refused before any allocation.
  EXPECT_THAT(WhyNotIdx(Gzip(Idx({0xfffffff0}, "abcd"))), HasSubstr("compressed bytes can hold"));
  // A decompression bomb: data beyond the size in the header is not decompressed.
  EXPECT_THAT(WhyNotIdx(Gzip(Idx({10}, std::string(64 << 20, '\0')))),
              HasSubstr("more data than its header says"));
}

}  // namespace
}  // namespace ringmaster::data
