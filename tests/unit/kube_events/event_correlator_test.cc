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

TEST(EventCorrelator, TheFirstIsMadeTheRestIsCounted) {
  EventCorrelator book = Make();
  book.Note(kJob, true, "PodFailed", "x-1-0: exit 7", At(0));
  auto writes = book.Take(At(0));
  ASSERT_EQ(writes.create.size(), 1u);
  EXPECT_EQ(writes.create[0].note, "x-1-0: exit 7");
  const std::string name = writes.create[0].name;
  for (int i = 1; i <= 5; ++i) book.Note(kJob, true, "PodFailed", "x-1-0: exit 7", At(i));
  writes = book.Take(At(6));
  EXPECT_TRUE(writes.create.empty());
  EXPECT_TRUE(writes.update.empty());
  EXPECT_EQ(book.NextWakeup(), At(60));
  writes = book.Take(At(60));
  ASSERT_EQ(writes.update.size(), 1u);
  EXPECT_EQ(writes.update[0].name, name);
  EXPECT_EQ(writes.update[0].count, 6);
  EXPECT_EQ(book.NextWakeup(), kNever);
}

TEST(EventCorrelator, AfterTheWindowItIsAnotherEvent) {
  EventCorrelator book = Make();
  book.Note(kJob, false, "Ready", "8 of 8", At(0));
  const std::string first = book.Take(At(0)).create.at(0).name;
  book.Note(kJob, false, "Ready", "8 of 8", At(361));
  const auto writes = book.Take(At(361));
  ASSERT_EQ(writes.create.size(), 1u);
  EXPECT_NE(writes.create[0].name, first);
}

TEST(EventCorrelator, ManyLikeItBecomeOne) {
  EventCorrelator book = Make();
  for (int i = 0; i < 40; ++i) book.Note(kJob, true, "PodFailed", fmt::format("pod {}", i), At(i));
  const auto writes = book.Take(At(99));
  ASSERT_EQ(writes.create.size(), 11u);  // ten, and one for the others
  EXPECT_EQ(writes.create.back().note, "(and others like it) pod 10");
  ASSERT_EQ(writes.update.size(), 1u);
  EXPECT_EQ(writes.update[0].name, writes.create.back().name);
  EXPECT_EQ(writes.update[0].count, 30);
  EXPECT_EQ(writes.update[0].note, "(and others like it) pod 39");
}

TEST(EventCorrelator, AJobThatSpeaksTooMuchIsCutAndOthersAreNot) {
  EventCorrelator book = Make();
  for (int i = 0; i < 100; ++i) book.Note(kJob, false, fmt::format("Reason{}", i), "n", At(0));
  EXPECT_EQ(book.Take(At(0)).create.size(), 25u);
  EXPECT_EQ(book.dropped(), 75);
  book.Note({"rm", "other", "u2"}, false, "Ready", "n", At(0));
  EXPECT_EQ(book.Take(At(0)).create.size(), 1u);
  book.Note(kJob, false, "Later", "n", At(300));
  book.Note(kJob, false, "Later2", "n", At(300));
  EXPECT_EQ(book.Take(At(300)).create.size(), 1u);
}

TEST(EventCorrelator, MemoryIsBounded) {
  EventCorrelator::Options options;
  options.capacity = 10;
  EventCorrelator book(options);
  for (int i = 0; i < 1000; ++i) {
    const EventSubject subject{"rm", fmt::format("job{}", i), fmt::format("u{}", i)};
    book.Note(subject, false, "Ready", "n", At(i));
    book.Note(subject, false, "Ready", "n", At(i));
    EXPECT_EQ(book.Take(At(i)).create.size(), 1u);
  }
  EXPECT_EQ(book.held(), 10u);
  // What was forgotten has no count to be told.
  EXPECT_LE(book.Take(At(100'000)).count.size(), 10u);
}

TEST(EventCorrelator, WhatNoNoteCanCountWithIsForgotten) {
  EventCorrelator book = Make();
  for (int i = 0; i < 100; ++i) book.Note({"rm", fmt::format("job{}", i), "u"}, false, "Ready", "n", At(i));
  EXPECT_EQ(book.Take(At(100)).create.size(), 100u);
  EXPECT_EQ(book.held(), 100u);
  book.Note(kJob, false, "Ready", "n", At(410));  // those of the last 360 s stay
  EXPECT_EQ(book.held(), 51u);
}

}  // namespace
}  // namespace ringmaster::kube
