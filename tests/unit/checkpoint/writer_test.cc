// SPDX-License-Identifier: Apache-2.0

// The background writer copies, skips and keeps checkpoints, and reports errors without stopping training.
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/unit/checkpoint/snapshots.h"

namespace ringmaster::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Writer> Make(const std::string& folder, int keep = 2) {
  auto writer = Writer::Create(folder, keep, "m1");
  EXPECT_TRUE(writer.ok()) << writer.error().message;
  return std::move(*writer);
}

TEST(Writer, CopiesBeforeItReturns) {
  const Folder folder;
  auto writer = Make(folder.path() + "/a/b");  // created by Create
  EXPECT_EQ(*writer->Poll(), -1);
  Copy copy = MakeCopy(3, kModel, 40 << 20);  // three chunks of the real size
  ASSERT_TRUE(writer->Start(Borrow(copy)).ok());
  for (auto& array : copy.arrays) std::fill(array.bytes.begin(), array.bytes.end(), std::byte{0});
  ASSERT_TRUE(writer->Wait().ok());
  EXPECT_EQ(*writer->Poll(), 3);
  const auto loaded = LoadNewest(folder.path() + "/a/b", kModel);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ExpectWhole(*loaded, 40 << 20);
  EXPECT_TRUE(fs::exists(loaded->path + "/chunk-00002"));
}

TEST(Writer, KeepsTheNewest) {
  const Folder folder;
  auto writer = Make(folder.path(), 3);
  for (int64_t step = 1; step <= 10; ++step) ASSERT_TRUE(writer->Start(Borrow(MakeCopy(step * 10))).ok());
  ASSERT_TRUE(writer->Wait().ok());
  EXPECT_THAT(List(folder.path()), ElementsAre(80, 90, 100));
  EXPECT_EQ(folder.Names().size(), 3U);
  // A new process with another `keep`.
  auto next = Make(folder.path(), 1);
  ASSERT_TRUE(next->Start(Borrow(MakeCopy(110))).ok());
  ASSERT_TRUE(next->Wait().ok());
  EXPECT_THAT(List(folder.path()), ElementsAre(110));
}

TEST(Writer, DestructionFinishesTheWrite) {
  const Folder folder;
  {
    auto writer = Make(folder.path());
    ASSERT_TRUE(writer->Start(Borrow(MakeCopy(4))).ok());
  }
  EXPECT_EQ(LoadNewest(folder.path(), kModel)->step, 4);
}

TEST(Writer, PublishedStepsAreSkipped) {
  const Folder folder;
  auto writer = Make(folder.path());
  ASSERT_TRUE(writer->Start(Borrow(MakeCopy(4))).ok());
  ASSERT_TRUE(writer->Wait().ok());
  const auto before = fs::last_write_time(folder.path() + "/step-000000000004/MANIFEST");
  ASSERT_TRUE(writer->Start(Borrow(MakeCopy(4))).ok());
  ASSERT_TRUE(writer->Wait().ok());
  auto another = Make(folder.path());  // finds it there
  ASSERT_TRUE(another->Start(Borrow(MakeCopy(4))).ok());
  ASSERT_TRUE(another->Wait().ok());
  EXPECT_EQ(*another->Poll(), 4);
  EXPECT_EQ(fs::last_write_time(folder.path() + "/step-000000000004/MANIFEST"), before);
}

TEST(Writer, AnotherModelsCheckpointsAreNeitherCountedNorRemoved) {
  const Folder folder;
  PublishSmall(folder.path(), 1, 2, "another-model");
  auto writer = Make(folder.path(), 1);
  for (const int64_t step : {2, 3}) {
    ASSERT_TRUE(writer->Start(Borrow(MakeCopy(step))).ok());
    ASSERT_TRUE(writer->Wait().ok());
  }
  EXPECT_THAT(List(folder.path()), ElementsAre(1, 3));
}

TEST(Writer, CreateRemovesFoldersOfDeadWriters) {
  const Folder folder;
  fs::create_directory(folder.path() + "/step-000000000006.tmp-dead");
  WriteText(folder.path() + "/step-000000000006.tmp-dead/chunk-00000", "left behind");
  Make(folder.path());
  EXPECT_TRUE(folder.Names().empty());
}

TEST(Writer, RefusesAFolderItCannotUse) {
  const Folder folder;
  WriteText(folder.path() + "/file", "");
  const auto made = Writer::Create(folder.path() + "/file/below", 1, "m");
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, AllOf(HasSubstr("/file/below"), HasSubstr("choose another")));
  EXPECT_FALSE(Writer::Create("", 1, "m").ok());
  EXPECT_FALSE(Writer::Create(folder.path(), 0, "m").ok());
}

// In the tests below a child process drops its privileges or gets a limit; its exit status shows which
// expectation failed.
int InChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

TEST(Writer, LostPermissionsFailTheWriteNotTheProcess) {
  const Folder parent;
  fs::permissions(parent.path(), fs::perms::all);
  const std::string folder = parent.path() + "/checkpoints";
  EXPECT_EQ(InChild([&] {
              constexpr unsigned kNobody = 65534;
              if (::geteuid() == 0 && ::setresgid(kNobody, kNobody, kNobody) != 0) return 1;
              if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) return 1;
              auto writer = Writer::Create(folder, 1, "m");
              if (!writer.ok()) return 2;
              fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
              if (!(*writer)->Start(Borrow(MakeCopy(1))).ok()) return 4;
              const Status written = (*writer)->Wait();
              if (written.ok()) return 5;
              if (written.error().code != Code::kForbidden) return 6;
              if (written.error().message.find("make the folder writable") == std::string::npos) return 7;
              const auto again = Writer::Create(folder, 1, "m");
              return !again.ok() && again.error().message.find("Permission denied") != std::string::npos ? 0
                                                                                                         : 8;
            }),
            0);
  fs::permissions(folder, fs::perms::owner_all);
}

TEST(Writer, AWriteThatDoesNotFitIsReportedOnceAndKeepsTheOldCheckpoint) {
  const Folder folder;
  PublishSmall(folder.path(), 1);
  EXPECT_EQ(InChild([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{4096, 4096};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              auto writer = Writer::Create(folder.path(), 1, "m");
              if (!writer.ok()) return 2;
              if (!(*writer)->Start(Borrow(MakeCopy(2, kModel, 100000))).ok()) return 3;
              const Status written = (*writer)->Wait();
              if (written.ok() || written.error().code != Code::kExhausted) return 4;
              if (written.error().message.find("checkpoint of step 2") == std::string::npos) return 5;
              if (!(*writer)->Poll().ok()) return 6;  // Wait has reported it
              // The next, smaller one succeeds.
              if (!(*writer)->Start(Borrow(MakeCopy(3))).ok() || !(*writer)->Wait().ok()) return 7;
              return *(*writer)->Poll() == 3 ? 0 : 8;
            }),
            0);
  EXPECT_EQ(LoadNewest(folder.path(), kModel)->step, 3);
  EXPECT_EQ(folder.Names(), std::vector<std::string>{"step-000000000003"});
}

TEST(Writer, AFailedWriteFreesItsSpaceOnAFullDisk) {
  const Folder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "needs the right to mount";
  }
  {
    auto writer = Make(folder.path());
    ASSERT_TRUE(writer->Start(Borrow(MakeCopy(1))).ok());
    ASSERT_TRUE(writer->Wait().ok());
    ASSERT_TRUE(writer->Start(Borrow(MakeCopy(2, kModel, 4 << 20))).ok());
    ASSERT_FALSE(writer->Wait().ok());
    ASSERT_TRUE(writer->Start(Borrow(MakeCopy(2, kModel, 4 << 20))).ok());
    Result<int64_t> polled = 1;
    while ((polled = writer->Poll()).ok()) {  // does not block: poll
    }
    EXPECT_EQ(polled.error().code, Code::kExhausted);
    EXPECT_THAT(polled.error().message,
                AllOf(HasSubstr(folder.path()), HasSubstr("No space left"), HasSubstr("free space")));
    EXPECT_EQ(*writer->Poll(), 1);
    EXPECT_EQ(folder.Names(), std::vector<std::string>{"step-000000000001"});
    ASSERT_TRUE(writer->Start(Borrow(MakeCopy(3))).ok());
    EXPECT_TRUE(writer->Wait().ok());
    EXPECT_EQ(LoadNewest(folder.path(), kModel)->step, 3);
  }
  ::umount(folder.path().c_str());
}

}  // namespace
}  // namespace ringmaster::checkpoint
