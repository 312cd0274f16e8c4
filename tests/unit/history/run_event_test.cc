// SPDX-License-Identifier: Apache-2.0

#include "cli/history/run_event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

TEST(RunEvent, EveryMemberSurvivesTheFile) {
  rendezvous::EventLine line{rendezvous::EventKind::kGenerationFormed, "generation 2: \"3\" workers\n"};
  line.generation = (uint64_t{7} << 32) | 2;
  line.start_step = 10;
  line.workers = {"gpt-1-0", "gpt-1-2"};
  line.recovery = milliseconds(9);
  line.evidence = "hang";
  RunEvent event = EventOf(line);
  event.signal = "SIGSTOP";
  event.time = "2026-11-23T19:44:33.730Z";
  event.monotonic_seconds = 12.5;
  event.loss = 1.0 / 3;
  const RunEvent read = ParseEventLine(EventLineText(event)).value();
  EXPECT_EQ(read.reason, "GenerationFormed");
  EXPECT_EQ(read.message, line.text);
  EXPECT_EQ(read.generation, line.generation);
  EXPECT_EQ(read.step, 10);
  EXPECT_EQ(read.workers, line.workers);
  EXPECT_DOUBLE_EQ(*read.recovery_seconds, 0.009);
  EXPECT_EQ(read.evidence, "hang");
  EXPECT_EQ(read.signal, "SIGSTOP");
  EXPECT_EQ(*read.loss, 1.0 / 3);
  EXPECT_FALSE(read.warning);
}

TEST(RunEvent, MembersThatDoNotApplyAreAbsent) {
  RunEvent event;
  event.reason = "Note";
  EXPECT_EQ(EventLineText(event), R"({"time":"","monotonicSeconds":0.000,"reason":"Note","message":""})");
  event.warning = true;
  EXPECT_EQ(EventLineText(event),
            R"({"time":"","monotonicSeconds":0.000,"type":"Warning","reason":"Note","message":""})");
}

TEST(RunEvent, ALineGrowsLittleWithTheGang) {
  RunEvent event;
  for (int i = 0; i < 64; ++i) event.workers.push_back("gpt-text-1-" + std::to_string(i));
  const std::string line = EventLineText(event);
  EXPECT_LE(line.size(), 100U) << line;
  EXPECT_EQ(ParseEventLine(line).value().workers, event.workers);
}

TEST(RunEvent, ReadsTheLinesOfEarlierVersions) {
  const RunEvent event =
      ParseEventLine(R"({"time":"2026-11-23T19:44:33.730Z","monotonicSeconds":29149.517970,"type":"Normal",)"
                     R"("reason":"GenerationFormed","message":"m","workers":["gpt-1-2","gpt-1-0"]})")
          .value();
  EXPECT_FALSE(event.warning);
  EXPECT_EQ(event.monotonic_seconds, 29149.517970);
  EXPECT_EQ(event.workers, (std::vector<std::string>{"gpt-1-2", "gpt-1-0"}));
}

TEST(ReadEvents, SkipsWhatIsNotAnEvent) {
  const TempFolder folder;
  RunEvent event;
  event.reason = "Note";
  const std::string line = EventLineText(event) + "\n";
  const auto events = ReadEvents(folder.Write("e", line + "{}\n\xff\n" + line + "{\"time\":"));
  EXPECT_EQ(events.value().size(), 2U);
  EXPECT_EQ(ReadEvents(folder.File("none")).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace ringmaster::cli
