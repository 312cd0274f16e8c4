// SPDX-License-Identifier: Apache-2.0

// Over epochs, steps and micro-batches, every sample is taken exactly once, in an order that does not depend
// on the number of micro-batches.
#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {
namespace {

TEST(Cursor, TakesEveryPositionOnceForAllSizes) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SplitMix64 random(seed);
    const auto size = static_cast<int64_t>(1 + random.Below(500));
    const int micro_batches = 1 + static_cast<int>(random.Below(12));
    const int64_t per_step = micro_batches * static_cast<int64_t>(1 + random.Below(20));
    Cursor cursor;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      int64_t expected = 0;
      int64_t steps = 0;
      while (cursor.epoch == epoch) {
        const StepSamples step = NextStep(cursor, per_step, size);
        ASSERT_EQ(step.epoch, epoch);
        ASSERT_EQ(step.position, expected) << "seed " << seed;
        int64_t within = 0;
        for (int v = 0; v < micro_batches; ++v) {
          const Slice slice = MicroBatch(step, per_step, micro_batches, v);
          ASSERT_EQ(slice.begin, within) << "seed " << seed;
          ASSERT_GE(slice.end, slice.begin);
          ASSERT_LE(slice.end - slice.begin, per_step / micro_batches);
          within = slice.end;
        }
        ASSERT_EQ(within, step.count) << "seed " << seed;
        expected += step.count;
        ++steps;
        cursor = Advance(cursor, step, size);
      }
      ASSERT_EQ(expected, size) << "seed " << seed;
      ASSERT_EQ(steps, StepsPerEpoch(size, per_step));
      ASSERT_EQ(cursor, (Cursor{epoch + 1, 0}));
    }
  }
}

TEST(Cursor, LastStepIsShortAndLateMicroBatchesAreEmpty) {
  const StepSamples last = NextStep({.epoch = 2, .position = 96}, 16, 101);
  EXPECT_EQ(last, (StepSamples{.epoch = 2, .position = 96, .count = 5}));
  EXPECT_EQ(MicroBatch(last, 16, 4, 0), (Slice{0, 4}));
  EXPECT_EQ(MicroBatch(last, 16, 4, 1), (Slice{4, 5}));
  EXPECT_EQ(MicroBatch(last, 16, 4, 2), (Slice{5, 5}));
  EXPECT_EQ(MicroBatch(last, 16, 4, 3), (Slice{5, 5}));
  EXPECT_EQ(Advance({.epoch = 2, .position = 96}, last, 101), (Cursor{.epoch = 3, .position = 0}));
}

TEST(Cursor, StepsPerEpochRoundsUp) {
  EXPECT_EQ(StepsPerEpoch(1, 10), 1);
  EXPECT_EQ(StepsPerEpoch(10, 10), 1);
  EXPECT_EQ(StepsPerEpoch(11, 10), 2);
}

}  // namespace
}  // namespace ringmaster::data
