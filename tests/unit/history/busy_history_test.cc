// SPDX-License-Identifier: Apache-2.0

#include "cli/history/busy_history.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "cli/run/busy_log.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

rendezvous::GangBusyTimes Times(int64_t step, rendezvous::Generation generation = 3) {
  rendezvous::GangBusyTimes times;
  times.generation = generation;
  times.step = step;
  times.pods = std::make_shared<const std::vector<std::string>>(std::vector<std::string>{"a-0", "a-1"});
  times.ranks = {{10, 0.0123456, 0.02, 3, false}, {10, 0.5, 1, 3, true}};
  return times;
}

TEST(BusyLine, HasTheNumbersOfEachRank) {
  EXPECT_EQ(BusyLine(Times(7), 12.5, true),
            R"({"monotonicSeconds":12.500,"step":7,"seconds":[0.01235,0.5],"longest":[0.02,1],)"
            R"("stragglers":[1],"generation":3,"workers":["a-[0,1]"]})");
  EXPECT_EQ(BusyLine(Times(7), 12.5, false), "[12.500,7,[0.01235,0.5],[0.02,1],[1]]");
  auto times = Times(8);
  times.ranks[1] = {};
  EXPECT_EQ(BusyLine(times, 13, false), "[13.000,8,[0.01235,null],[0.02,null]]");
}

TEST(BusyHistory, KeepsTheWindowsOfTheNewestGeneration) {
  BusyHistory history;
  history.Read("torn");
  history.Read(BusyLine(Times(6), 1, false));  // before any names
  EXPECT_EQ(history.count(), 0u);
  history.Read(BusyLine(Times(7), 1, true));
  history.Read(BusyLine(Times(8), 2, false));
  history.Read(R"({"step":9,"seconds":[1],"longest":[1]})");  // of another number of workers
  history.Read(R"({"step":9,"seconds":["x",1],"longest":[1,1]})");
  for (const char* line : {"[]", "[1,9]", "[1,9,[1],[1]]", "[1,9,2,3]", R"([1,9,["x",1],[1,1]])", "9"})
    history.Read(line);
  ASSERT_EQ(history.count(), 2u);
  EXPECT_EQ(
      history.ToJson(0).dump(),
      R"({"reset":true,"stragglers":[1],"windows":[[7,[0.01235,0.5],[0.02,1]],[8,[0.01235,0.5],[0.02,1]]],)"
      R"("workers":["a-0","a-1"]})");
  EXPECT_EQ(history.ToJson(1)["windows"].size(), 1u);
  EXPECT_EQ(history.ToJson(1)["reset"], false);
  history.Read(BusyLine(Times(9, 4), 3, true));
  EXPECT_EQ(history.ToJson(2)["reset"], true);
  EXPECT_EQ(history.ToJson(1)["windows"].size(), 1u);
  for (int i = 0; i < 1000; ++i) history.Read(BusyLine(Times(10 + i, 4), 4, false));
  EXPECT_EQ(history.ToJson(0)["windows"].size(), BusyHistory::kWindows);
  EXPECT_EQ(history.ToJson(700)["windows"].size(), BusyHistory::kWindows);
  EXPECT_EQ(history.ToJson(history.count() - 3)["windows"].size(), 3u);
  EXPECT_EQ(history.ToJson(history.count() - 3)["reset"], false);
}

TEST(BusyHistory, ReadsTheLinesOfEarlierVersions) {
  BusyHistory history;
  history.Read(R"({"monotonicSeconds":1,"step":7,"generation":3,"workers":["a-0","a-1"],"seconds":[0.5,1],)"
               R"("longest":[0.5,2]})");
  history.Read(R"({"monotonicSeconds":2,"step":9,"seconds":[0.5,1],"longest":[0.5,3],"stragglers":[1]})");
  EXPECT_EQ(history.ToJson(0).dump(),
            R"({"reset":true,"stragglers":[1],"windows":[[7,[0.5,1],[0.5,2]],[9,[0.5,1],[0.5,3]]],)"
            R"("workers":["a-0","a-1"]})");
}

TEST(BusyLog, GrowsWithTheStepsAndLosesNoWindow) {
  const TempFolder folder;
  const std::string path = folder.path() + "/busy_times.jsonl";
  auto log = BusyLog::Open(path);
  ASSERT_TRUE(log.ok());
  constexpr int64_t kSteps = 20'000;
  for (int64_t step = 1; step <= kSteps; ++step) (*log)->Add(Times(step), 1);
  const std::string text = ReadFile(path).value();
  EXPECT_LE(text.size(), static_cast<size_t>(BusyLog::kFreeBytes + BusyLog::kBytesPerStep * kSteps));
  EXPECT_GT(text.size(), static_cast<size_t>(BusyLog::kBytesPerStep * kSteps / 2));
  EXPECT_EQ(text.find("workers"), text.rfind("workers")) << "names are written once per generation";
  auto next = Times(kSteps + 100, 4);
  (*log)->Add(next, 2);
  EXPECT_NE(ReadFile(path).value().rfind(R"("generation":4)"), std::string::npos);
}

TEST(MergeBusyTimes, WeighsWindowsByTheirSteps) {
  auto sum = Times(7);
  auto next = Times(9);
  next.ranks = {{30, 0.0523456, 0.01, 4, true}, {}};
  MergeBusyTimes(next, &sum);
  EXPECT_EQ(sum.step, 9);
  EXPECT_NEAR(sum.ranks[0].seconds, 0.0423456, 1e-12);
  EXPECT_EQ(sum.ranks[0].longest, 0.02);
  EXPECT_TRUE(sum.ranks[0].straggler);
  EXPECT_EQ(sum.ranks[1].seconds, 0.5) << "a rank without a report keeps its numbers";
}

}  // namespace
}  // namespace ringmaster::cli
