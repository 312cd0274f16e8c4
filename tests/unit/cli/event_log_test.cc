// SPDX-License-Identifier: Apache-2.0

#include "cli/run/event_log.h"

#include <gtest/gtest.h>

#include "cli/history/run_event.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

TEST(EventLog, AnEventAfterATornOneIsALine) {
  const TempFolder folder;
  const std::string path = folder.Write("events.jsonl", "{\"time\":\"2026-");
  auto log = EventLog::Open(path);
  ASSERT_TRUE(log.ok()) << log.error().message;
  RunEvent event;
  event.reason = "Started";
  event.message = "again";
  (*log)->Write(event);
  const auto read = ReadEvents(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 1U);
  EXPECT_EQ(read->front().message, "again");
}

}  // namespace
}  // namespace ringmaster::cli
