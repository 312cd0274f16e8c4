// SPDX-License-Identifier: Apache-2.0

#include "base/json.h"

#include <gtest/gtest.h>

namespace ringmaster {
namespace {

TEST(Json, RejectsDuplicateKeysAtAnyDepth) {
  EXPECT_TRUE(ParseJson(R"({"a":{"x":1},"b":{"x":2}})").ok());
  const auto twice = ParseJson(R"({"a":[{"x":1,"x":2}]})");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("duplicate key \"x\""), std::string::npos);
}

TEST(Json, RejectsDepthBeyondTheLimit) {
  EXPECT_TRUE(ParseJson(std::string(60, '[') + std::string(60, ']')).ok());
  EXPECT_FALSE(ParseJson(std::string(100000, '[')).ok());
  EXPECT_FALSE(ParseJson(std::string(70, '[') + std::string(70, ']')).ok());
}

TEST(Json, BracketsInStringsDoNotCountAsDepth) {
  EXPECT_TRUE(ParseJson("{\"a\":\"" + std::string(500, '[') + "\\\"\"}").ok());
}

TEST(Json, RejectsTrailingTextAndInvalidUtf8) {
  EXPECT_FALSE(ParseJson("{} x").ok());
  EXPECT_FALSE(ParseJson("\"\xff\"").ok());
}

TEST(Json, StrictReadersNameTheKey) {
  const auto value = ParseJson(R"({"n":3,"s":"x","big":18446744073709551615})").value();
  EXPECT_EQ(JsonInt(value, "n").value(), 3);
  EXPECT_EQ(JsonString(value, "n").error().message, "n: must be a string");
  EXPECT_EQ(JsonInt(value, "none").error().message, "none: required");
  EXPECT_FALSE(JsonInt(value, "big").ok());
  EXPECT_EQ(JsonUint(value, "big").value(), UINT64_MAX);
}

}  // namespace
}  // namespace ringmaster
