// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/event_correlator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace ringmaster::kube {
namespace {

const EventSubject kJob{"rm", "gpt", "u1"};
Time At(int64_t s) { return Time{} + seconds(s); }

EventCorrelator Make() {
  EventCorrelator::Options options;
  options.salt = "s";
  return EventCorrelator(options);
}

TEST(EventCorrelator, FirstEventIsCreatedAndRepeatsAreCounted) {
  EventCorrelator correlator = Make();
  correlator.Add(kJob, true, "PodFailed", "x-1-0: exit 7", At(0));
  auto writes = correlator.Take(At(0));
  ASSERT_EQ(writes.create.size(), 1u);
  EXPECT_EQ(writes.create[0].note, "x-1-0: exit 7");
  const std::string name = writes.create[0].name;
  for (int i = 1; i <= 5; ++i) correlator.Add(kJob, true, "PodFailed", "x-1-0: exit 7", At(i));
  writes = correlator.Take(At(6));
  EXPECT_TRUE(writes.create.empty());
  EXPECT_TRUE(writes.update.empty());
  EXPECT_EQ(correlator.NextWakeup(), At(60));
  writes = correlator.Take(At(60));
  ASSERT_EQ(writes.update.size(), 1u);
  EXPECT_EQ(writes.update[0].name, name);
  EXPECT_EQ(writes.update[0].count, 6);
  EXPECT_EQ(correlator.NextWakeup(), kNever);
}

TEST(EventCorrelator, EventAfterTheWindowStartsANewSeries) {
  EventCorrelator correlator = Make();
  correlator.Add(kJob, false, "Ready", "8 of 8", At(0));
  const std::string first = correlator.Take(At(0)).create.at(0).name;
  correlator.Add(kJob, false, "Ready", "8 of 8", At(361));
  const auto writes = correlator.Take(At(361));
  ASSERT_EQ(writes.create.size(), 1u);
  EXPECT_NE(writes.create[0].name, first);
}

TEST(EventCorrelator, ManySimilarNotesBecomeOneSeries) {
  EventCorrelator correlator = Make();
  for (int i = 0; i < 40; ++i) correlator.Add(kJob, true, "PodFailed", fmt::format("pod {}", i), At(i));
  const auto writes = correlator.Take(At(99));
  ASSERT_EQ(writes.create.size(), 11u);  // ten, and one series for the rest
  EXPECT_EQ(writes.create.back().note, "(and similar events) pod 10");
  ASSERT_EQ(writes.update.size(), 1u);
  EXPECT_EQ(writes.update[0].name, writes.create.back().name);
  EXPECT_EQ(writes.update[0].count, 30);
  EXPECT_EQ(writes.update[0].note, "(and similar events) pod 39");
}

TEST(EventCorrelator, RateLimitAppliesPerJob) {
  EventCorrelator correlator = Make();
  for (int i = 0; i < 100; ++i) correlator.Add(kJob, false, fmt::format("Reason{}", i), "n", At(0));
  EXPECT_EQ(correlator.Take(At(0)).create.size(), 25u);
  EXPECT_EQ(correlator.dropped(), 75);
  correlator.Add({"rm", "other", "u2"}, false, "Ready", "n", At(0));
  EXPECT_EQ(correlator.Take(At(0)).create.size(), 1u);
  correlator.Add(kJob, false, "Later", "n", At(300));
  correlator.Add(kJob, false, "Later2", "n", At(300));
  EXPECT_EQ(correlator.Take(At(300)).create.size(), 1u);
}

TEST(EventCorrelator, MemoryIsBounded) {
  EventCorrelator::Options options;
  options.capacity = 10;
  EventCorrelator correlator(options);
  for (int i = 0; i < 1000; ++i) {
    const EventSubject subject{"rm", fmt::format("job{}", i), fmt::format("u{}", i)};
    correlator.Add(subject, false, "Ready", "n", At(i));
    correlator.Add(subject, false, "Ready", "n", At(i));
    EXPECT_EQ(correlator.Take(At(i)).create.size(), 1u);
  }
  EXPECT_EQ(correlator.held(), 10u);
  // A forgotten series has no update left.
  EXPECT_LE(correlator.Take(At(100'000)).update.size(), 10u);
}

TEST(EventCorrelator, SeriesOutsideTheWindowAreForgotten) {
  EventCorrelator correlator = Make();
  for (int i = 0; i < 100; ++i)
    correlator.Add({"rm", fmt::format("job{}", i), "u"}, false, "Ready", "n", At(i));
  EXPECT_EQ(correlator.Take(At(100)).create.size(), 100u);
  EXPECT_EQ(correlator.held(), 100u);
  correlator.Add(kJob, false, "Ready", "n", At(410));  // those of the last 360 s stay
  EXPECT_EQ(correlator.held(), 51u);
}

}  // namespace
}  // namespace ringmaster::kube
