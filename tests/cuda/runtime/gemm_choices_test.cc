// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/gemm_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ringmaster::cuda {
namespace {

GemmChoice Of(uint8_t fill, double milliseconds) {
  GemmChoice choice{.milliseconds = milliseconds};
  choice.algorithm.fill(fill);
  return choice;
}

GemmChoices Some() {
  GemmChoices choices("NVIDIA H200, sm_90, 132 multiprocessors, cuBLASLt 130100");
  choices.Set({.m = 3, .n = 5, .k = 7}, Of(0x00, 0.5));
  choices.Set({.m = 3, .n = 5, .k = 7, .a_transposed = true, .in = DType::kBf16, .accumulate = true},
              Of(0xff, 1.25));
  choices.Set({.m = 3,
               .n = 5,
               .k = 7,
               .b_transposed = true,
               .out = DType::kBf16,
               .epilogue = Epilogue::kBiasGelu,
               .ldc = 128},
              Of(0x1e, 0));
  return choices;
}

TEST(GemmChoices, ParsesItsOwnText) {
  const GemmChoices choices = Some();
  const auto read = GemmChoices::Parse(choices.Text(), choices.key());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->Text(), choices.Text());
  EXPECT_EQ(read->all().size(), 3u);
  EXPECT_EQ(read->Fingerprint(), choices.Fingerprint());
  ASSERT_NE(read->Find({.m = 3, .n = 5, .k = 7}), nullptr);
  EXPECT_EQ(read->Find({.m = 3, .n = 5, .k = 7})->milliseconds, 0.5);
  EXPECT_EQ(read->Find({.m = 3, .n = 5, .k = 8}), nullptr);
}

TEST(GemmChoices, FingerprintCoversAlgorithmsButNotDurations) {
  GemmChoices choices = Some();
  const uint64_t before = choices.Fingerprint();
  choices.Set({.m = 3, .n = 5, .k = 7}, Of(0x00, 99));
  EXPECT_EQ(choices.Fingerprint(), before);
  choices.Set({.m = 3, .n = 5, .k = 7}, Of(0x01, 99));
  EXPECT_NE(choices.Fingerprint(), before);
  GemmChoice apart = Of(0x00, 0.5);
  apart.fused = false;
  choices.Set({.m = 3, .n = 5, .k = 7}, apart);
  EXPECT_NE(choices.Fingerprint(), before);
}

TEST(GemmChoices, RejectsAnotherKeyAndNamesBoth) {
  const auto read = GemmChoices::Parse(Some().Text(), "NVIDIA A100");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::kInvalid);
  EXPECT_THAT(read.error().message, testing::HasSubstr("NVIDIA H200, sm_90"));
  EXPECT_THAT(read.error().message, testing::HasSubstr("this is NVIDIA A100"));
}

TEST(GemmChoices, OnlyEpiloguesWithAKernelMayBeSeparate) {
  for (const Epilogue epilogue :
       {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluGradient}) {
    GemmChoices choices("some GPU");
    GemmChoice apart = Of(0x01, 1);
    apart.fused = false;
    choices.Set({.m = 3, .n = 5, .k = 7, .epilogue = epilogue}, apart);
    const auto read = GemmChoices::Parse(choices.Text(), "some GPU");
    EXPECT_EQ(read.ok(), epilogue == Epilogue::kBiasGelu || epilogue == Epilogue::kGeluGradient);
    if (read.ok()) {
      EXPECT_EQ(read->Text(), choices.Text());
    }
  }
}

TEST(GemmChoices, RejectsDamagedText) {
  const std::string whole = Some().Text();
  EXPECT_FALSE(GemmChoices::Parse("", Some().key()).ok());
  for (size_t cut = 1; cut < 40; ++cut) {
    const auto read = GemmChoices::Parse(whole.substr(0, whole.size() - 10 - cut), Some().key());
    ASSERT_FALSE(read.ok()) << cut;
    EXPECT_EQ(read.error().code, Code::kCorrupt);
  }
}

}  // namespace
}  // namespace ringmaster::cuda
