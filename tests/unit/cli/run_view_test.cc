// SPDX-License-Identifier: Apache-2.0

#include "cli/run/run_view.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

Inbox::Content Steps(int64_t first, int64_t last) {
  Inbox::Content content;
  Inbox::Content::Batch batch;
  for (int64_t step = first; step <= last; ++step) {
    rendezvous::StepRecord record;
    record.step = step;
    record.loss = static_cast<double>(step);
    record.samples = 4;
    record.workers = 1;
    record.seconds = 0.1;
    batch.progress.records.push_back(record);
  }
  content.progress.push_back(batch);
  return content;
}

// metrics.jsonl ends with step 100, and the checkpoint of the program is of step 50.
TEST(RunView, AProgramThatStartsAgainFromAnEarlierStepHasTheSummaryOfItsLastStep) {
  const TempFolder folder;
  RunPlan plan;
  plan.programs.emplace();
  plan.job.metadata.name = "job";
  RunOptions options;
  options.progress = ProgressStyle::kJson;
  const OutputPaths paths = PathsIn(folder.path(), folder.File("checkpoints"));
  auto first = RunView::Create(plan, paths, 0, options).value();
  ASSERT_TRUE(first->Take(Steps(1, 100)).ok());
  ASSERT_TRUE(first->Finish("Failed", "").ok());
  auto second = RunView::Create(plan, paths, 100, options).value();
  ASSERT_TRUE(second->Take(Steps(51, 60)).ok());
  ASSERT_TRUE(second->Take(Steps(58, 62)).ok());
  ASSERT_TRUE(second->Finish("Succeeded", "").ok());
  const Json summary = ParseJson(folder.Read(std::filesystem::path(paths.summary).filename())).value();
  EXPECT_EQ(summary["step"], 62);
  EXPECT_EQ(summary["loss"], 62.0);
}

}  // namespace
}  // namespace ringmaster::cli
