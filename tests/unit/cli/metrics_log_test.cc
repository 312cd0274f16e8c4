// SPDX-License-Identifier: Apache-2.0

#include "cli/run/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

using rendezvous::StepRecord;
using testing::ElementsAre;

StepRecord Step(int64_t step, double loss = 1.0) {
  StepRecord record;
  record.step = step;
  record.loss = loss;
  record.samples = 4;
  record.workers = 2;
  return record;
}

std::vector<int64_t> StepsIn(const std::string& text) {
  std::vector<int64_t> steps;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const Json step = ParseJson(line).value();
    steps.push_back(step.is_array() ? step.at(0).get<int64_t>() : JsonInt(step, "step").value());
  }
  return steps;
}

std::vector<int64_t> StepsOf(const Result<std::vector<StepRecord>>& records) {
  std::vector<int64_t> steps;
  for (const StepRecord& record : records.value()) steps.push_back(record.step);
  return steps;
}

TEST(MetricsLog, KeepsTheFirstOfEachStepInOrder) {
  const TempFolder folder;
  auto log = MetricsLog::Open(folder.File("m"), 0).value();
  EXPECT_THAT(StepsOf(log->Add(Step(1, 1.5))), ElementsAre(1));
  EXPECT_THAT(StepsOf(log->Add(Step(2))), ElementsAre(2));
  EXPECT_THAT(StepsOf(log->Add(Step(1, 9.0))), ElementsAre());
  EXPECT_THAT(StepsOf(log->Add(Step(3))), ElementsAre(3));
  EXPECT_THAT(StepsIn(folder.Read("m")), ElementsAre(1, 2, 3));
  EXPECT_NE(folder.Read("m").find("\"loss\":1.5"), std::string::npos);
}

TEST(MetricsLog, ARecordAfterAGapWaitsForTheMissingOnes) {
  const TempFolder folder;
  auto log = MetricsLog::Open(folder.File("m"), 0).value();
  EXPECT_THAT(StepsOf(log->Add(Step(3))), ElementsAre());
  EXPECT_THAT(StepsOf(log->Add(Step(1))), ElementsAre(1));
  EXPECT_THAT(StepsOf(log->Add(Step(2))), ElementsAre(2, 3));
  EXPECT_THAT(StepsOf(log->Add(Step(6))), ElementsAre());
  EXPECT_THAT(StepsOf(log->Finish()), ElementsAre(6));
  EXPECT_THAT(StepsIn(folder.Read("m")), ElementsAre(1, 2, 3, 6));
}

TEST(MetricsLog, AGapIsGivenUpAfterMaxWaitingRecords) {
  const TempFolder folder;
  auto log = MetricsLog::Open(folder.File("m"), 0).value();
  size_t written = 0;
  for (int64_t step = 2; step <= 100; ++step) written += log->Add(Step(step)).value().size();
  EXPECT_EQ(written, 99U);
}

TEST(MetricsLog, ResumeDropsStepsAfterTheCheckpointAndATornLine) {
  const TempFolder folder;
  std::string text;
  for (int64_t step = 1; step <= 7; ++step) text += FullStepLine(Step(step)) + "\n";
  text += FullStepLine(Step(8)).substr(0, 20);
  folder.Write("m", text);
  auto log = MetricsLog::Open(folder.File("m"), 5).value();
  EXPECT_THAT(StepsIn(folder.Read("m")), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(StepsOf(log->Add(Step(6))), ElementsAre(6));
  EXPECT_THAT(StepsIn(folder.Read("m")), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(MetricsLog, ResumeWithATornLineBeforeTheCheckpointWaitsForRepeats) {
  const TempFolder folder;
  folder.Write("m", FullStepLine(Step(1)) + "\n" + FullStepLine(Step(2)) + "\n" + "{\"step\":3,");
  auto log = MetricsLog::Open(folder.File("m"), 5).value();
  EXPECT_EQ(log->last_step(), 2);
  EXPECT_EQ(log->last_loss(), 1.0);
  for (int64_t step = 1; step <= 6; ++step) ASSERT_TRUE(log->Add(Step(step)).ok());
  EXPECT_THAT(StepsIn(folder.Read("m")), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(MetricsLog, ResumeWithoutTheFileContinuesAfterTheCheckpoint) {
  const TempFolder folder;
  auto log = MetricsLog::Open(folder.File("m"), 5).value();
  EXPECT_THAT(StepsOf(log->Add(Step(6))), ElementsAre(6));
}

TEST(MetricsLog, ResumeFromStepZeroTruncatesTheFile) {
  const TempFolder folder;
  folder.Write("m", FullStepLine(Step(1)) + "\n");
  auto log = MetricsLog::Open(folder.File("m"), 0).value();
  EXPECT_EQ(folder.Read("m"), "");
  EXPECT_THAT(StepsOf(log->Add(Step(1))), ElementsAre(1));
}

// A program that names its own folder of checkpoints, or has none.
TEST(MetricsLog, TheFirstRecordDecidesWhereAProgramContinues) {
  const TempFolder folder;
  std::string text;
  for (int64_t step = 1; step <= 7; ++step) text += FullStepLine(Step(step)) + "\n";
  folder.Write("m", text + "{\"step\":8,");
  auto log = MetricsLog::Open(folder.File("m"), std::nullopt).value();
  EXPECT_EQ(folder.Read("m"), text);
  EXPECT_EQ(log->last_step(), 7);
  EXPECT_THAT(StepsOf(log->Add(Step(8))), ElementsAre(8));
  EXPECT_THAT(StepsOf(log->Add(Step(6))), ElementsAre());  // repeated by another worker

  log = MetricsLog::Open(folder.File("m"), std::nullopt).value();
  EXPECT_THAT(StepsOf(log->Add(Step(5, 2.5))), ElementsAre(5));
  EXPECT_THAT(StepsIn(folder.Read("m")), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_NE(folder.Read("m").find("2.5"), std::string::npos);

  log = MetricsLog::Open(folder.File("m"), std::nullopt).value();
  EXPECT_THAT(StepsOf(log->Add(Step(1, 3.5))), ElementsAre(1));
  EXPECT_THAT(StepsIn(folder.Read("m")), ElementsAre(1));
}

TEST(MetricsLog, ACutThatFailsIsTriedAgainWithTheSameRecords) {
  const TempFolder folder;
  std::string text;
  for (int64_t step = 1; step <= 7; ++step) text += FullStepLine(Step(step)) + "\n";
  folder.Write("m", text);
  auto log = MetricsLog::Open(folder.File("m"), std::nullopt).value();
  // The file that would replace it cannot be written.
  const std::string obstacle = folder.File("m") + ".tmp-" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(obstacle.c_str(), 0755), 0);
  EXPECT_FALSE(log->Add(Step(4, 2.5)).ok());
  EXPECT_FALSE(log->Add(Step(5, 3.5)).ok());
  EXPECT_FALSE(log->Finish().ok());
  EXPECT_EQ(folder.Read("m"), text);
  ASSERT_EQ(::rmdir(obstacle.c_str()), 0);
  EXPECT_THAT(StepsOf(log->Add(Step(6))), ElementsAre(4, 5, 6));
  EXPECT_THAT(StepsIn(folder.Read("m")), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_NE(folder.Read("m").find("2.5"), std::string::npos);
  EXPECT_NE(folder.Read("m").find("3.5"), std::string::npos);
}

TEST(MetricsLog, AFileThatCannotBeReadIsNotTruncated) {
  const TempFolder folder;
  ASSERT_EQ(::mkdir(folder.File("m").c_str(), 0755), 0);  // read fails with EISDIR
  EXPECT_FALSE(MetricsLog::LastStepOf(folder.File("m")).ok());
  EXPECT_FALSE(MetricsLog::Open(folder.File("m"), 5).ok());
  EXPECT_FALSE(MetricsLog::Open(folder.File("m"), std::nullopt).ok());
}

TEST(MetricsLog, AMissingFolderIsAnErrorWithItsPath) {
  auto log = MetricsLog::Open("/nowhere/m", 0);
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.error().message.find("/nowhere/m"), std::string::npos);
}

}  // namespace
}  // namespace ringmaster::cli
