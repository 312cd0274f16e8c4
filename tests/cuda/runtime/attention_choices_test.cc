// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/attention_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ringmaster::cuda {
namespace {

constexpr char kKey[] = "NVIDIA H200, sm_90, 132 multiprocessors";
const AttentionProblem kLarge{
    .samples = 64, .heads = 12, .context = 1024, .head_size = 64, .type = DType::kBf16};
const AttentionBackend kCudnn{.library = "cuDNN-9.19.0", .plan = "eng6_k24=26"};

AttentionChoices SomeAttention() {
  AttentionChoices choices(kKey);
  choices.Set(kLarge, {.forward = {}, .backward = kCudnn});
  choices.Set({.samples = 1, .heads = 2, .context = 3, .head_size = 4}, {});
  return choices;
}

TEST(AttentionChoices, ParsesItsOwnText) {
  const AttentionChoices choices = SomeAttention();
  const auto read = AttentionChoices::Parse(choices.Text(), choices.key());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->Text(), choices.Text());
  EXPECT_EQ(read->all(), choices.all());
  EXPECT_EQ(read->Fingerprint(), choices.Fingerprint());
  ASSERT_NE(read->Find(kLarge), nullptr);
  EXPECT_TRUE(read->Find(kLarge)->Of(AttentionPass::kForward).native());
  EXPECT_EQ(read->Find(kLarge)->Of(AttentionPass::kBackward), kCudnn);
  EXPECT_EQ(read->Find({.samples = 64, .heads = 12, .context = 1024, .head_size = 64}), nullptr)
      << "a different type";
}

TEST(AttentionChoices, FingerprintCoversBackendsAndPlans) {
  AttentionChoices choices = SomeAttention();
  const uint64_t before = choices.Fingerprint();
  AttentionBackend other = kCudnn;
  other.plan = "eng6_k24=27";
  choices.Set(kLarge, {.forward = {}, .backward = other});
  EXPECT_NE(choices.Fingerprint(), before);
  choices.Set(kLarge, {.forward = kCudnn, .backward = {}});
  EXPECT_NE(choices.Fingerprint(), before);
  choices.Set(kLarge, {.forward = {}, .backward = kCudnn});
  EXPECT_EQ(choices.Fingerprint(), before);
}

TEST(AttentionChoices, RejectsTheKeyOfAnotherGpuAndNamesBoth) {
  const auto read = AttentionChoices::Parse(SomeAttention().Text(), "NVIDIA A100");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::kInvalid);
  EXPECT_THAT(read.error().message, testing::HasSubstr(kKey));
  EXPECT_THAT(read.error().message, testing::HasSubstr("this is NVIDIA A100"));
}

TEST(AttentionChoices, RejectsDamagedText) {
  const std::string whole = SomeAttention().Text();
  EXPECT_EQ(AttentionChoices::Parse("", kKey).error().code, Code::kCorrupt);
  for (size_t cut = 1; cut < 30; ++cut) {
    const auto read = AttentionChoices::Parse(whole.substr(0, whole.size() - cut), kKey);
    ASSERT_FALSE(read.ok()) << cut;
    EXPECT_EQ(read.error().code, Code::kCorrupt);
  }
  EXPECT_EQ(AttentionChoices::Parse(whole + "1 2 3 4 x own - own -\n", kKey).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace ringmaster::cuda
