// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/step_buckets.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"

namespace ringmaster::cli {
namespace {

std::vector<rendezvous::StepRecord> Steps(int64_t first, int64_t last) {
  std::vector<rendezvous::StepRecord> records;
  for (int64_t step = first; step <= last; ++step) {
    rendezvous::StepRecord record;
    record.step = step;
    record.loss = 1.0 / static_cast<double>(step);
    record.samples = 8;
    record.seconds = 0.5;
    records.push_back(record);
  }
  return records;
}

TEST(StepBuckets, AShortRunHasOneBucketPerStep) {
  StepBuckets buckets;
  buckets.Add(Steps(1, 4));
  const Json json = *ParseJson(buckets.Json(0, StepBuckets::StrideFor(4)));
  EXPECT_EQ(json["stride"], 1);
  EXPECT_EQ(json["step"], Json({1, 2, 3, 4}));
  EXPECT_EQ(json["loss"][3], 0.25);
  EXPECT_EQ(json["rate"][0], 16);
  EXPECT_EQ(json["goodput"][3], 1);
}

TEST(StepBuckets, ALongRunKeepsItsExtremes) {
  StepBuckets buckets;
  auto records = Steps(1, 100'000);
  records[70'001].loss = 42;
  buckets.Add(std::move(records));
  const size_t stride = StepBuckets::StrideFor(100'000);
  EXPECT_EQ(stride, 64U);
  const Json json = *ParseJson(buckets.Json(0, stride));
  ASSERT_EQ(json["step"].size(), 1563U);
  EXPECT_EQ(json["high"][70'001 / 64], 42);
  EXPECT_EQ(json["step"].back(), 100'000);
}

TEST(StepBuckets, AChangeBeginsWithTheBucketThatGrew) {
  StepBuckets buckets;
  buckets.Add(Steps(1, 3001));
  EXPECT_EQ(StepBuckets::StrideFor(3001), 2U);
  buckets.Add(Steps(3002, 3003));
  const Json json = *ParseJson(buckets.Json(3001, 2));
  EXPECT_EQ(json["from"], 1500);
  EXPECT_EQ(json["step"], Json({3002, 3003}));
}

TEST(StepBuckets, ARangeHasMoreDetail) {
  StepBuckets buckets;
  buckets.Add(Steps(1, 100'000));
  const Json json = *ParseJson(buckets.JsonOfRange(500, 600));
  EXPECT_EQ(json["stride"], 1);
  EXPECT_EQ(json["step"].size(), 101U);
  EXPECT_TRUE(ParseJson(buckets.JsonOfRange(600, 500)).ok());
  EXPECT_TRUE(ParseJson(buckets.JsonOfRange(INT64_MIN, INT64_MAX)).ok());
}

TEST(StepBuckets, LossesThatAreNoNumbersAreNull) {
  StepBuckets buckets;
  auto records = Steps(1, 2);
  records[1].loss = NAN;
  buckets.Add(std::move(records));
  const Json json = *ParseJson(buckets.Json(0, 1));
  EXPECT_TRUE(json["loss"][1].is_null());
  EXPECT_TRUE(json["low"][1].is_null());
}

TEST(StepBuckets, ALongStepLowersTheGoodput) {
  StepBuckets buckets;
  auto records = Steps(1, 9);
  records[8].seconds = 6;  // counts as 1
  buckets.Add(std::move(records));
  EXPECT_DOUBLE_EQ(buckets.Goodput(), 0.5);
}

TEST(StepBuckets, TheTimeBetweenGenerationsLowersTheGoodput) {
  StepBuckets buckets;
  auto records = Steps(1, 8);
  for (size_t i = 0; i < records.size(); ++i) records[i].generation = i < 4 ? 1 : 2;
  buckets.Add(std::move(records));
  EXPECT_DOUBLE_EQ(buckets.Goodput(), 1);
  buckets.SetGenerations({{1, 100.0}, {2, 106.0}}, 0);  // 2 s of steps, then 4 s without one
  EXPECT_DOUBLE_EQ(buckets.Goodput(), 0.5);
  buckets.SetGenerations({{1, 100.0}, {2, 106.0}}, 8);
  EXPECT_DOUBLE_EQ(buckets.Goodput(), 1) << "steps of an earlier run";
}

TEST(StepBuckets, NoSteps) {
  StepBuckets buckets;
  EXPECT_TRUE(ParseJson(buckets.Json(0, 1)).ok());
  EXPECT_EQ(buckets.Goodput(), 0);
}

}  // namespace
}  // namespace ringmaster::cli
