// SPDX-License-Identifier: Apache-2.0

#include "cli/run/output_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>

#include "tests/temp_folder.h"
#include "worker/checkpoint/names.h"

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
  folder.Write("a/digests/alone.1.0.jsonl", "x");
  folder.Write("a/mine.txt", "x");
  ASSERT_TRUE(out->Clean("default/a").ok());
  EXPECT_FALSE(fs::exists(folder.File("a/checkpoints/step-000000000010")));
  EXPECT_FALSE(fs::exists(folder.File("a/metrics.jsonl")));
  EXPECT_FALSE(fs::exists(folder.File("a/logs/job-1-0.log")));
  EXPECT_FALSE(fs::exists(folder.File("a/digests/alone.1.0.jsonl")));
  EXPECT_TRUE(fs::exists(folder.File("a/checkpoints/notes.txt")));
  EXPECT_TRUE(fs::exists(folder.File("a/mine.txt")));
}

TEST(OutputFolder, CleanNamesWhatItCannotRemoveAndRemovesTheRest) {
  const TempFolder folder;
  auto out = OutputFolder::Open(PathsIn(folder.File("a"), ""), 0);
  ASSERT_TRUE(out.ok());
  out->Keep();
  // In the place of a file of another owner: a folder that is not empty.
  fs::create_directory(folder.File("a/logs/held.log"));
  folder.Write("a/logs/held.log/x", "x");
  folder.Write("a/logs/job-1-0.log", "x");
  folder.Write("a/summary.json", "x");
  const Status cleaned = out->Clean("default/a");
  ASSERT_FALSE(cleaned.ok());
  EXPECT_TRUE(Names(cleaned.error(), "held.log")) << cleaned.error().message;
  EXPECT_FALSE(fs::exists(folder.File("a/logs/job-1-0.log")));
  EXPECT_FALSE(fs::exists(folder.File("a/summary.json")));
}

TEST(OutputFolder, TwoRunsDoNotShareAFolderOfCheckpoints) {
  const TempFolder folder;
  const auto open = [&folder](const char* out) {
    return OutputFolder::Open(PathsIn(folder.File(out), folder.File("shared")), 0);
  };
  auto first = open("a");
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto second = open("b");
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(Names(second.error(), "shared")) << second.error().message;
  EXPECT_TRUE(Names(second.error(), std::to_string(::getpid()))) << second.error().message;
  EXPECT_TRUE(Names(second.error(), "spec.checkpoint.path")) << second.error().message;
}

TEST(OutputFolder, CheckpointsMayBeInTheOutputFolderItself) {
  const TempFolder folder;
  auto out = OutputFolder::Open(PathsIn(folder.File("a"), folder.File("a")), 0);
  ASSERT_TRUE(out.ok()) << out.error().message;
  // A writer of another process does not wait for the lock that this run holds.
  const Fd lock(::open((folder.File("a") + "/" + std::string(checkpoint::kFolderLockName)).c_str(),
                       O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(lock.valid());
  EXPECT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
}

TEST(OutputFolder, ExistingCheckpointsHaveTheirSpaceAlready) {
  const TempFolder folder;
  struct statvfs disk {};
  ASSERT_EQ(::statvfs(folder.path().c_str(), &disk), 0);
  const auto available = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  const std::string step = folder.File("a/checkpoints/step-000000000010");
  fs::create_directories(step);
  const std::string chunk = step + "/chunk-00000";
  const int64_t bytes = int64_t{1} << 40;  // a sparse file
  folder.Write("a/checkpoints/step-000000000010/chunk-00000", "");
  fs::resize_file(chunk, static_cast<uintmax_t>(bytes));
  EXPECT_TRUE(OutputFolder::Open(PathsIn(folder.File("a"), ""), available / 2 + bytes).ok());
  EXPECT_FALSE(OutputFolder::Open(PathsIn(folder.File("a"), ""), available * 2 + bytes).ok());
}

}  // namespace
}  // namespace ringmaster::cli
