// SPDX-License-Identifier: Apache-2.0

#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace ringmaster {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0) return Error{Code::kInvalid, "odd"};
  return x / 2;
}

Result<int> Quarter(int x) {
  RM_ASSIGN(const int half, Half(x));
  RM_ASSIGN(const int quarter, Half(half));
  return quarter;
}

TEST(Result, CarriesValueOrError) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).error().message, "odd");
  EXPECT_EQ(Quarter(6).error().In("x").message, "x: odd");
}

TEST(Result, HoldsMoveOnlyValues) {
  auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(3); };
  auto result = make();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*std::move(result).value(), 3);
}

TEST(ResultDeathTest, ValueOfAnErrorAborts) { EXPECT_DEATH((void)Half(1).value(), "odd"); }

}  // namespace
}  // namespace ringmaster
