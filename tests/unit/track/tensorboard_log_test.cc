// SPDX-License-Identifier: Apache-2.0

#include "cli/track/tensorboard_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/track/tf_record.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

using testing::ElementsAre;

rendezvous::StepRecord StepAt(int64_t step) {
  rendezvous::StepRecord record;
  record.step = step;
  record.loss = 1.5;
  record.samples = 8;
  record.seconds = 0.5;
  record.workers = 2;
  return record;
}

std::vector<rendezvous::StepRecord> StepsTo(int64_t last) {
  std::vector<rendezvous::StepRecord> steps;
  for (int64_t step = 1; step <= last; ++step) steps.push_back(StepAt(step));
  return steps;
}

std::vector<EventHead> EventsIn(const std::string& folder) {
  std::vector<EventHead> events;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files += entry.file_size() > 0 ? 1 : 0;
    std::ostringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    const std::string bytes = text.str();
    std::string_view rest = bytes;
    while (const auto record = TakeTfRecord(rest)) events.push_back(ReadEventHead(*record).value());
    EXPECT_TRUE(rest.empty()) << rest.size() << " bytes are not a record";
  }
  EXPECT_EQ(files, 1);
  return events;
}

std::vector<int64_t> StepsOf(const std::vector<EventHead>& events) {
  std::vector<int64_t> steps;
  for (const EventHead& event : events) steps.push_back(event.step);
  return steps;
}

TEST(TfRecord, HasTheChecksumsOfTheFormat) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);  // the check value of CRC-32C
  const std::string record = TfRecord("hello");
  EXPECT_EQ(record.size(), 8U + 4 + 5 + 4);
  std::string_view rest = record;
  EXPECT_EQ(TakeTfRecord(rest), "hello");
  EXPECT_TRUE(rest.empty());
}

TEST(TfRecord, ATornOrDamagedRecordIsNoRecord) {
  const std::string record = TfRecord("hello");
  for (size_t size = 0; size < record.size(); ++size) {
    std::string_view torn = std::string_view(record).substr(0, size);
    EXPECT_FALSE(TakeTfRecord(torn).has_value()) << size;
  }
  for (size_t at = 0; at < record.size(); ++at) {
    std::string damaged = record;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    std::string_view rest = damaged;
    EXPECT_FALSE(TakeTfRecord(rest).has_value()) << at;
  }
}

TEST(TfRecord, HeadsOfEventsAreReadAndGarbageIsNot) {
  const EventHead head = ReadEventHead(ScalarsEvent(12.5, 1'000'000, {{"a", 1}})).value();
  EXPECT_EQ(head.wall_time, 12.5);
  EXPECT_EQ(head.step, 1'000'000);
  EXPECT_FALSE(ReadEventHead("\xff\xff\xff").has_value());
  EXPECT_FALSE(ReadEventHead("\x0a\x7f").has_value()) << "longer than the text";
}

TEST(TensorboardLog, EachStepIsWrittenOnceAcrossAResume) {
  const TempFolder folder;
  const std::string path = folder.File("tb");
  auto log = TensorboardLog::Open(path, {}, {}, 0, 1000).value();
  for (int64_t step = 1; step <= 7; ++step)
    ASSERT_TRUE(log->Add(StepAt(step), 1000 + static_cast<double>(step)).ok());
  EXPECT_THAT(StepsOf(EventsIn(path)), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  // The checkpoint is of step 5; steps 6 and 7 are committed again.
  log = TensorboardLog::Open(path, StepsTo(5), {}, 5, 2000).value();
  ASSERT_TRUE(log->Add(StepAt(6), 2001).ok());
  const std::vector<EventHead> events = EventsIn(path);
  EXPECT_THAT(StepsOf(events), ElementsAre(0, 1, 1, 2, 3, 4, 5, 6)) << "version, restart at step 1, steps";
  EXPECT_EQ(events[2].wall_time, 1001) << "the times of the first run survive";
  EXPECT_EQ(events[7].wall_time, 2001);
  // A TensorBoard that has the older file open finds its end there, and advances to the newer one.
  EXPECT_EQ(std::filesystem::file_size(path + "/events.out.tfevents.0000001000.ringmaster"), 0U);
}

TEST(TensorboardLog, ATornRecordAndAMissingStepAreMended) {
  const TempFolder folder;
  const std::string path = folder.File("tb");
  auto log = TensorboardLog::Open(path, {}, {}, 0, 1000).value();
  ASSERT_TRUE(log->Add(StepAt(1), 1001).ok());
  log.reset();
  for (const auto& entry : std::filesystem::directory_iterator(path))
    std::ofstream(entry.path(), std::ios::app | std::ios::binary) << TfRecord("x").substr(0, 9);
  log = TensorboardLog::Open(path, StepsTo(3), {}, 3, 2000).value();
  EXPECT_THAT(StepsOf(EventsIn(path)), ElementsAre(0, 1, 1, 2, 3));
}

TEST(TensorboardLog, ARunThatStartsOverForgetsTheOneBefore) {
  const TempFolder folder;
  const std::string path = folder.File("tb");
  ASSERT_TRUE(TensorboardLog::Open(path, {}, {}, 0, 5000).value()->Add(StepAt(1), 5000).ok());
  // The clock went backwards; the name must still come after the older one.
  ASSERT_TRUE(TensorboardLog::Open(path, StepsTo(1), {}, 0, 1000).ok());
  EXPECT_THAT(StepsOf(EventsIn(path)), ElementsAre(0, 1)) << "version, restart";
  EXPECT_TRUE(std::filesystem::exists(path + "/events.out.tfevents.0000005001.ringmaster"));
}

TEST(TensorboardLog, AValidationIsWrittenOnce) {
  const TempFolder folder;
  const std::string path = folder.File("tb");
  RunEvent event;
  event.reason = "Validated";
  event.step = 2;
  event.loss = 1.25;
  RunEvent later = event;
  later.step = 9;
  auto log = TensorboardLog::Open(path, StepsTo(3), {event, event, later}, 3, 1000).value();
  ASSERT_TRUE(log->AddValidation({2, 1.25, {}}, 1001).ok());
  ASSERT_TRUE(log->AddValidation({9, 1.2, {}}, 1001).ok());
  EXPECT_THAT(StepsOf(EventsIn(path)), ElementsAre(0, 1, 2, 2, 3, 9));
}

TEST(TensorboardLog, AFolderThatCannotBeWrittenIsNamed) {
  const TempFolder folder;
  folder.Write("file", "x");
  const auto log = TensorboardLog::Open(folder.File("file/tb"), {}, {}, 0, 1000);
  ASSERT_FALSE(log.ok());
  EXPECT_THAT(log.error().message, testing::HasSubstr("file"));
}

}  // namespace
}  // namespace ringmaster::cli
