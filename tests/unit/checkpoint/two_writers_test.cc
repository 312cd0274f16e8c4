// SPDX-License-Identifier: Apache-2.0

// Several processes in one folder write the same step at once and respect each other's temporary folders.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/unit/checkpoint/forwarding_files.h"
#include "tests/unit/checkpoint/snapshots.h"
#include "worker/checkpoint/names.h"
#include "worker/checkpoint/temporary.h"

namespace ringmaster::checkpoint {
namespace {

namespace fs = std::filesystem;

// In the place of another process whose Sweep creates the lock of a folder again when its owner has just
// removed it.
class SweptFiles final : public ForwardingFiles {
 public:
  Status RemoveFolder(const std::string& path) override {
    WriteText(path + "/" + std::string(kLockName), "");
    return real_.RemoveFolder(path);
  }
};

// Runs `body` in `count` child processes that start together; all must succeed.
void Together(int count, const std::function<bool(int)>& body) {
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(gate[1]);
      char byte = 0;
      while (::read(gate[0], &byte, 1) > 0) {
      }
      ::_exit(body(i) ? 0 : 1);
    }
    children.push_back(child);
  }
  ::close(gate[0]);
  ::close(gate[1]);  // all go
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

TEST(TwoWriters, WritingTheSameStepsAtOnceGivesCompleteCheckpoints) {
  for (int round = 0; round < 10; ++round) {
    const Folder folder;
    Together(4, [&](int i) {
      Publisher publisher(&PosixFiles(), folder.path(), 2, fmt::format("m{}", i), kSmallChunk);
      for (int64_t step = 1; step <= 4; ++step) {
        const auto done = publisher.Publish(MakeCopy(step));
        if (!done.ok()) {
          std::fprintf(stderr, "step %lld: %s\n", static_cast<long long>(step), done.error().message.c_str());
          return false;
        }
      }
      return true;
    });
    const auto loaded = LoadNewest(folder.path(), kModel);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ASSERT_EQ(loaded->step, 4);
    ExpectWhole(*loaded);
    PublishSmall(folder.path(), 5, 1);
    ASSERT_EQ(folder.Names(), std::vector<std::string>{"step-000000000005"});
  }
}

TEST(TwoWriters, ReplacingADamagedOneAtOnce) {
  for (int round = 0; round < 10; ++round) {
    const Folder folder;
    PublishSmall(folder.path(), 1);
    PublishSmall(folder.path(), 2);
    WriteText(folder.path() + "/step-000000000002/chunk-00000", "damaged");
    Together(3, [&](int i) {
      Publisher publisher(&PosixFiles(), folder.path(), 2, fmt::format("m{}", i), kSmallChunk);
      return publisher.Publish(MakeCopy(2)).ok();
    });
    const auto loaded = LoadNewest(folder.path(), kModel);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ASSERT_EQ(loaded->step, 2);
    ExpectWhole(*loaded);
  }
}

TEST(Sweep, LeavesLiveWritersAlone) {
  const Folder folder;
  const auto live = Temporary::Create(&PosixFiles(), folder.path(), 7, "alive");
  ASSERT_TRUE(live.ok());
  WriteText(live->path() + "/chunk-00000", "half written");
  fs::last_write_time(live->path(), fs::file_time_type::clock::now() - std::chrono::hours(1000));
  fs::create_directory(folder.path() + "/step-000000000006.tmp-dead");
  WriteText(folder.path() + "/step-000000000006.tmp-dead/chunk-00000", "left behind");
  WriteText(folder.path() + "/step-000000000006.tmp-dead/LOCK", "");
  fs::create_directory(folder.path() + "/step-000000000005.tmp-without-lock");
  fs::create_directory(folder.path() + "/mine.tmp-x");
  Sweep(&PosixFiles(), folder.path());
  EXPECT_EQ(folder.Names(), (std::vector<std::string>{"mine.tmp-x", "step-000000000007.tmp-alive"}));
  EXPECT_TRUE(fs::exists(live->path() + "/chunk-00000"));
}

TEST(Sweep, ThatComesInBetweenDoesNotFailTheRemoval) {
  const Folder folder;
  SweptFiles files;
  const auto mine = Temporary::Create(&files, folder.path(), 7, "m");
  ASSERT_TRUE(mine.ok());
  WriteText(mine->path() + "/chunk-00000", "half written");
  const Status removed = RemoveWithFiles(&files, mine->path());
  EXPECT_TRUE(removed.ok()) << removed.error().message;
  Sweep(&PosixFiles(), folder.path());
  EXPECT_TRUE(folder.Names().empty());
}

TEST(Sweep, AWriterOfTheSameNameUsesAnotherFolder) {
  const Folder folder;
  const auto first = Temporary::Create(&PosixFiles(), folder.path(), 7, "m");
  const auto second = Temporary::Create(&PosixFiles(), folder.path(), 7, "m");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->path(), second->path());
}

}  // namespace
}  // namespace ringmaster::checkpoint
