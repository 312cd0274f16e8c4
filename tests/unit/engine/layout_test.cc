// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include "tests/unit/engine/fixtures.h"
#include "worker/compute/engine/layout_builder.h"

namespace ringmaster::engine {
namespace {

void ExpectSound(const Layout& layout) {
  int64_t at = 0;
  int64_t trainable = 0;
  for (const Parameter& parameter : layout.parameters) {
    EXPECT_EQ(parameter.offset, at) << parameter.name;
    EXPECT_EQ(parameter.offset % kBlock, 0);
    int64_t size = 1;
    for (const int64_t extent : parameter.shape) size *= extent;
    EXPECT_EQ(parameter.size, size);
    EXPECT_EQ(parameter.decay, parameter.shape.size() >= 2) << parameter.name;
    at += (size + kBlock - 1) / kBlock * kBlock;
    trainable += size;
  }
  EXPECT_EQ(layout.elements, at);
  EXPECT_EQ(layout.trainable, trainable);
  ASSERT_FALSE(layout.buckets.empty());
  int64_t end = 0;
  for (const Bucket& bucket : layout.buckets) {
    EXPECT_EQ(bucket.begin, end);
    EXPECT_GT(bucket.end, bucket.begin);
    EXPECT_EQ(bucket.end % kBlock, 0);
    EXPECT_LE(bucket.end - bucket.begin, LayoutBuilder::kLargeBucket);
    end = bucket.end;
  }
  EXPECT_EQ(end, layout.elements);
}

TEST(Layout, GptHasGpt2NamesInBackwardOrder) {
  const Layout layout = Make(SmallGpt())->layout();
  ExpectSound(layout);
  ASSERT_EQ(layout.parameters.size(), 2u + 2u * 12u + 2u);
  EXPECT_EQ(layout.parameters.front().name, "ln_f.weight");
  EXPECT_EQ(layout.parameters[2].name, "h.1.mlp.c_proj.weight");
  EXPECT_EQ(layout.parameters[14].name, "h.0.mlp.c_proj.weight");
  EXPECT_EQ(layout.parameters[25].name, "h.0.ln_1.bias");
  EXPECT_EQ(layout.parameters[26].name, "wpe.weight");
  EXPECT_EQ(layout.parameters[27].name, "wte.weight");
  EXPECT_EQ(layout.parameters[10].name, "h.1.attn.c_attn.weight");
  EXPECT_EQ(layout.parameters[10].shape, (std::vector<int64_t>{24, 72}));
  const int64_t c = 24;
  EXPECT_EQ(layout.trainable, 2 * c + 2 * (12 * c * c + 13 * c) + (10 + 37) * c);
}

TEST(Layout, SmallGptGetsABucketPerBlockAndASmallLastOne) {
  const Layout layout = Make({.kind = ModelKind::kGpt})->layout();
  ExpectSound(layout);
  ASSERT_EQ(layout.buckets.size(), 5u);
  EXPECT_LT(layout.buckets.back().end - layout.buckets.back().begin, 64 * 1024);
}

TEST(Layout, OthersAreSound) {
  ExpectSound(Make(SmallMlp())->layout());
  ExpectSound(Make(SmallCnn())->layout());
}

TEST(LayoutBuilder, MergesSmallGroupsAndCutsLargeOnes) {
  LayoutBuilder builder;
  builder.Add("a", {kBlock});
  builder.EndGroup();
  builder.Add("b", {LayoutBuilder::kSmallBucket});
  builder.EndGroup();
  builder.Add("c", {LayoutBuilder::kLargeBucket + 1});
  builder.EndGroup();
  builder.Add("d", {1});
  builder.EndGroup();
  const Layout layout = builder.Finish();
  ExpectSound(layout);
  ASSERT_EQ(layout.buckets.size(), 4u);
  EXPECT_EQ(layout.buckets[0].end, kBlock + LayoutBuilder::kSmallBucket);
  EXPECT_EQ(layout.buckets[1].end - layout.buckets[1].begin, LayoutBuilder::kLargeBucket);
  EXPECT_EQ(layout.buckets[2].end - layout.buckets[2].begin, kBlock);
  EXPECT_EQ(layout.buckets[3].end - layout.buckets[3].begin, kBlock);
}

}  // namespace
}  // namespace ringmaster::engine
