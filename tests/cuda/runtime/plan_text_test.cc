// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/plan_text.h"

#include <gtest/gtest.h>

namespace ringmaster::cuda {
namespace {

TEST(PlanText, ParsesItsOwnText) {
  for (const PlanText& plan : {PlanText{}, PlanText{.gemm = "one\ntwo\n", .attention = "attention 3\n"},
                               PlanText{.gemm = "without an end", .attention = std::string("\n\0\n", 3)}}) {
    const auto read = PlanText::Parse(plan.Text());
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->gemm, plan.gemm);
    EXPECT_EQ(read->attention, plan.attention);
  }
}

TEST(PlanText, RejectsDamagedText) {
  const std::string whole = PlanText{.gemm = "one\ntwo\n", .attention = "three\n"}.Text();
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto read = PlanText::Parse(whole.substr(0, size));
    ASSERT_FALSE(read.ok()) << size;
    EXPECT_EQ(read.error().code, Code::kCorrupt);
  }
  EXPECT_FALSE(PlanText::Parse(whole + "\n").ok());
  EXPECT_FALSE(PlanText::Parse("ringmaster product choices 2\n").ok()) << "a plan of an older version";
  EXPECT_FALSE(PlanText::Parse("ringmaster GPU plan 1\nproducts 18446744073709551615\n").ok());
}

}  // namespace
}  // namespace ringmaster::cuda
