// SPDX-License-Identifier: Apache-2.0

#include "cli/manifest.h"

#include <gtest/gtest.h>

#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

std::string Manifest(const std::string& workers) {
  return "apiVersion: ringmaster.dev/v1alpha1\n"
         "kind: TrainingJob\n"
         "metadata: {name: small}\n"
         "spec:\n"
         "  framework: native\n"
         "  workers: " +
         workers +
         "\n"
         "  training:\n"
         "    model: {kind: gpt}\n"
         "    data: {kind: text, path: corpus.txt}\n"
         "    steps: 10\n";
}

TEST(ParseSet, SplitsAtTheFirstEquals) {
  EXPECT_EQ(*ParseSet("spec.a=b=c"), std::make_pair(std::string("spec.a"), std::string("b=c")));
  EXPECT_EQ(*ParseSet("spec.a="), std::make_pair(std::string("spec.a"), std::string()));
  EXPECT_FALSE(ParseSet("spec.a").ok());
  EXPECT_FALSE(ParseSet("=1").ok());
}

TEST(LoadManifest, WorkersWidensTheRangeOnlyWhereItMust) {
  const TempFolder folder;
  const std::string file = folder.Write("job.yaml", Manifest("{replicas: 4, min: 2, max: 6}"));
  struct Case {
    int n, replicas, min, max;
  };
  for (const Case& c : {Case{0, 4, 2, 6}, Case{3, 3, 2, 6}, Case{1, 1, 1, 6}, Case{8, 8, 2, 8}}) {
    auto job = LoadManifest(file, {}, c.n);
    ASSERT_TRUE(job.ok()) << job.error().message;
    EXPECT_EQ(job->spec.workers.replicas, c.replicas) << c.n;
    EXPECT_EQ(job->spec.workers.EffectiveMin(), c.min) << c.n;
    EXPECT_EQ(job->spec.workers.EffectiveMax(), c.max) << c.n;
  }
}

TEST(LoadManifest, MoreWorkersThanMicroBatchesAreRejected) {
  const TempFolder folder;
  auto job = LoadManifest(folder.Write("job.yaml", Manifest("{replicas: 4}")), {}, 17);
  ASSERT_FALSE(job.ok());
  EXPECT_NE(job.error().message.find("microBatches"), std::string::npos) << job.error().message;
}

TEST(LoadManifest, EveryProblemHasFileLineAndPath) {
  const TempFolder folder;
  const std::string file = folder.Write("job.yaml", Manifest("{replicas: 4, min: 5, colour: red}"));
  auto job = LoadManifest(file, {}, 0);
  ASSERT_FALSE(job.ok());
  EXPECT_NE(job.error().message.find(file + ":6:"), std::string::npos) << job.error().message;
  EXPECT_NE(job.error().message.find("spec.workers.colour"), std::string::npos) << job.error().message;
}

TEST(LoadManifest, AMissingFileNamesIt) {
  auto job = LoadManifest("/nowhere/job.yaml", {}, 0);
  ASSERT_FALSE(job.ok());
  EXPECT_NE(job.error().message.find("/nowhere/job.yaml"), std::string::npos);
}

TEST(LoadManifest, SetsApply) {
  const TempFolder folder;
  const std::string file = folder.Write("job.yaml", Manifest("{replicas: 4}"));
  auto job = LoadManifest(file, {{"spec.training.steps", "77"}}, 0);
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->spec.training->steps, 77);
  EXPECT_FALSE(LoadManifest(file, {{"spec.training.stepz", "77"}}, 0).ok());
}

}  // namespace
}  // namespace ringmaster::cli
