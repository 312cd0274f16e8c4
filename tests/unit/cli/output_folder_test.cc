// SPDX-License-Identifier: Apache-2.0

#include "cli/run/output_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {
namespace fs = std::filesystem;

bool Names(const Error& error, const std::string& part) {
  return error.message.find(part) != std::string::npos;
}

TEST(OutputFolder, CreatesTheFoldersAndKeepsThemWhenTheRunStarts) {
  const TempFolder folder;
  {
    auto out = OutputFolder::Open(PathsIn(folder.File("a/b"), ""), 0);
    ASSERT_TRUE(out.ok()) << out.error().message;
    out->Keep();
  }
  EXPECT_TRUE(fs::is_directory(folder.File("a/b/checkpoints")));
  EXPECT_TRUE(fs::is_directory(folder.File("a/b/logs")));
}

TEST(OutputFolder, RemovesTheFoldersWhenTheRunDoesNotStart) {
  const TempFolder folder;
  ASSERT_TRUE(OutputFolder::Open(PathsIn(folder.File("a/b"), ""), 0).ok());
  EXPECT_FALSE(fs::exists(folder.File("a")));
}

TEST(OutputFolder, KeepsExistingFiles) {
  const TempFolder folder;
  fs::create_directory(folder.File("a"));
  folder.Write("a/mine.txt", "x");
  ASSERT_TRUE(OutputFolder::Open(PathsIn(folder.File("a"), ""), 0).ok());
  EXPECT_TRUE(fs::exists(folder.File("a/mine.txt")));
}

TEST(OutputFolder, ASecondRunFailsWithThePidOfTheFirst) {
  const TempFolder folder;
  auto first = OutputFolder::Open(PathsIn(folder.File("a"), ""), 0);
  ASSERT_TRUE(first.ok());
  auto second = OutputFolder::Open(PathsIn(folder.File("a"), ""), 0);
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(Names(second.error(), std::to_string(::getpid())));
  EXPECT_TRUE(Names(second.error(), "--out"));
  EXPECT_TRUE(fs::exists(folder.File("a")));
}

TEST(OutputFolder, RejectsAPathThatIsAFile) {
  const TempFolder folder;
  folder.Write("a", "x");
  auto out = OutputFolder::Open(PathsIn(folder.File("a"), ""), 0);
  ASSERT_FALSE(out.ok());
  EXPECT_TRUE(Names(out.error(), folder.File("a")));
  EXPECT_TRUE(Names(out.error(), "--out"));
}

TEST(OutputFolder, RejectsADiskWithTooLittleSpace) {
  const TempFolder folder;
  auto out = OutputFolder::Open(PathsIn(folder.File("a"), ""), int64_t{1} << 60);
  ASSERT_FALSE(out.ok());
  EXPECT_TRUE(Names(out.error(), "MB are free"));
  EXPECT_FALSE(fs::exists(folder.File("a")));
}

TEST(OutputFolder, CleanRemovesOnlyFilesOfARun) {
  const TempFolder folder;
  auto out = OutputFolder::Open(PathsIn(folder.File("a"), ""), 0);
  ASSERT_TRUE(out.ok());
  out->Keep();
  fs::create_directory(folder.File("a/checkpoints/step-000000000010"));
  folder.Write("a/checkpoints/step-000000000010/MANIFEST", "x");
  folder.Write("a/checkpoints/notes.txt", "x");
  folder.Write("a/metrics.jsonl", "x");
  folder.Write("a/logs/job-1-0.log", "x");
  folder.Write("a/mine.txt", "x");
  ASSERT_TRUE(out->Clean().ok());
  EXPECT_FALSE(fs::exists(folder.File("a/checkpoints/step-000000000010")));
  EXPECT_FALSE(fs::exists(folder.File("a/metrics.jsonl")));
  EXPECT_FALSE(fs::exists(folder.File("a/logs/job-1-0.log")));
  EXPECT_TRUE(fs::exists(folder.File("a/checkpoints/notes.txt")));
  EXPECT_TRUE(fs::exists(folder.File("a/mine.txt")));
}

}  // namespace
}  // namespace ringmaster::cli
