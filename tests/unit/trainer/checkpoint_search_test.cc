// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/checkpoint_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temp_folder.h"
#include "worker/checkpoint/names.h"
#include "worker/trainer/checkpoint_saver.h"

namespace ringmaster::trainer {
namespace {

using testing::HasSubstr;

// The manifest of the only checkpoint is a pipe: to open it waits for a writer, as a read does on storage
// that hangs.
class CheckpointSearchTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string checkpoint = folder_.path() + "/" + checkpoint::StepName(40);
    std::filesystem::create_directory(checkpoint);
    manifest_ = checkpoint + "/" + std::string(checkpoint::kManifestName);
    ASSERT_EQ(::mkfifo(manifest_.c_str(), 0600), 0);
  }
  void EndTheWait() { std::ofstream(manifest_) << "no manifest"; }
  rendezvous::MemberStatus Answer(Duration patience) {
    rendezvous::MemberStatus status;
    search_.Answer(patience, &status);
    return status;
  }

  const TempFolder folder_;
  std::string manifest_;
  CheckpointSearch search_{folder_.path(), {.run = "", .model = "feedfeedfeedfeed"}};
};

TEST_F(CheckpointSearchTest, AnswersWhileItLooks) {
  for (int i = 0; i < 2; ++i) {
    const rendezvous::MemberStatus status = Answer(milliseconds(20));
    EXPECT_TRUE(status.looking);
    EXPECT_EQ(status.checkpoint_step, -1);
    EXPECT_EQ(status.checkpoint_text, folder_.path() + " is still being read");
  }
  EndTheWait();
  const rendezvous::MemberStatus status = Answer(seconds(60));
  EXPECT_FALSE(status.looking);
  EXPECT_THAT(status.checkpoint_text, HasSubstr("has no checkpoint; skipped"));
}

TEST_F(CheckpointSearchTest, LooksAgainAfterAGeneration) {
  EXPECT_TRUE(Answer(milliseconds(20)).looking);
  search_.Forget();
  EndTheWait();
  EXPECT_TRUE(Answer(milliseconds(500)).looking) << "the folder may have changed since the first search";
  EndTheWait();
  EXPECT_FALSE(Answer(seconds(60)).looking);
}

TEST(CheckpointSearch, AJobWithoutCheckpointsHasNothingToLookFor) {
  CheckpointSearch search("", {.run = "", .model = "feedfeedfeedfeed"});
  rendezvous::MemberStatus status;
  search.Answer(Duration::zero(), &status);
  EXPECT_FALSE(status.looking);
  EXPECT_EQ(status.checkpoint_text, "spec.checkpoint.path is not set");
}

TEST(MissingCheckpoint, NamesTheNodeAndWhatWasFound) {
  EXPECT_THAT(MissingCheckpoint("/ckpt", 50, nullptr),
              HasSubstr("the checkpoint of step 50 is missing: /ckpt has no checkpoint. "));
  ::setenv("RINGMASTER_NODE", "node-1", 1);
  checkpoint::Loaded found;
  found.path = "/ckpt/step-40";
  found.skipped = {"/ckpt/step-50: truncated"};
  EXPECT_THAT(
      MissingCheckpoint("/ckpt", 50, &found),
      HasSubstr("the checkpoint of step 50 is missing on node node-1: the newest that can be loaded is "
                "/ckpt/step-40; skipped /ckpt/step-50: truncated. "));
  ::unsetenv("RINGMASTER_NODE");
}

}  // namespace
}  // namespace ringmaster::trainer
