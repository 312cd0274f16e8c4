// SPDX-License-Identifier: Apache-2.0

#include "base/base64.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace ringmaster {
namespace {

TEST(Base64, KnownValuesOfRfc4648) {
  EXPECT_EQ(EncodeBase64(""), "");
  EXPECT_EQ(EncodeBase64("f"), "Zg==");
  EXPECT_EQ(EncodeBase64("fo"), "Zm8=");
  EXPECT_EQ(EncodeBase64("foobar"), "Zm9vYmFy");
}

TEST(Base64, DecodeInvertsEncode) {
  SplitMix64 rng(1);
  for (size_t length = 0; length < 200; ++length) {
    std::string bytes(length, '\0');
    for (char& c : bytes) c = static_cast<char>(rng.Next());
    const auto back = DecodeBase64(EncodeBase64(bytes));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back.value(), bytes);
  }
}

TEST(Base64, RejectsInvalidText) {
  EXPECT_FALSE(DecodeBase64("abc").ok());
  EXPECT_FALSE(DecodeBase64("ab!d").ok());
  EXPECT_FALSE(DecodeBase64("=abc").ok());
}

}  // namespace
}  // namespace ringmaster
