// SPDX-License-Identifier: Apache-2.0

// A folder of checkpoints is not a writer's alone: links, and files that no writer creates, survive the
// removal of old checkpoints and a new start.
#include <fcntl.h>
#include <gmock/gmock.h>

#include "tests/unit/checkpoint/forwarding_files.h"
#include "tests/unit/checkpoint/snapshots.h"
#include "worker/checkpoint/temporary.h"

namespace ringmaster::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void PublishAll(const std::string& folder, int64_t first, int64_t last, int keep) {
  for (int64_t step = first; step <= last; ++step) PublishSmall(folder, step, keep);
}

TEST(ForeignFiles, ALinkIsLoadedAndNeverRemoved) {
  const Folder archive;
  PublishSmall(archive.path(), 4);
  const Folder folder;
  fs::create_directory_symlink(archive.path() + "/step-000000000004", folder.path() + "/step-000000000004");
  EXPECT_EQ(LoadNewest(folder.path(), kModel)->step, 4);
  PublishAll(folder.path(), 5, 7, 1);
  EXPECT_EQ(folder.Names(), (std::vector<std::string>{"step-000000000004", "step-000000000007"}));
  EXPECT_EQ(LoadNewest(archive.path(), kModel)->step, 4);  // whole
  // Nor by a sweep.
  fs::create_directory_symlink(archive.path() + "/step-000000000004",
                               folder.path() + "/step-000000000009.tmp-mine");
  Sweep(&PosixFiles(), folder.path());
  EXPECT_TRUE(fs::is_symlink(folder.path() + "/step-000000000009.tmp-mine"));
  EXPECT_EQ(LoadNewest(archive.path(), kModel)->step, 4);
  EXPECT_FALSE(fs::exists(archive.path() + "/step-000000000004/LOCK"));
}

TEST(ForeignFiles, AFolderInACheckpointDoesNotKeepTheOldOnes) {
  const Folder folder;
  PublishAll(folder.path(), 1, 3, 3);
  fs::create_directory(folder.path() + "/step-000000000001/plots");
  WriteText(folder.path() + "/step-000000000001/plots/loss.png", "mine");
  WriteText(folder.path() + "/step-000000000002/notes.txt", "mine");
  PublishAll(folder.path(), 4, 6, 1);
  EXPECT_THAT(List(folder.path()), ElementsAre(6));
  EXPECT_EQ(ReadText(folder.path() + "/step-000000000001/plots/loss.png"), "mine");
  EXPECT_EQ(ReadText(folder.path() + "/step-000000000002/notes.txt"), "mine");
  EXPECT_FALSE(fs::exists(folder.path() + "/step-000000000001/chunk-00000"));
  EXPECT_FALSE(fs::exists(folder.path() + "/step-000000000003"));
}

TEST(ForeignFiles, ANewStartRemovesOnlyWhatWritersCreated) {
  const Folder folder;
  PublishAll(folder.path(), 1, 3, 3);
  fs::remove(folder.path() + "/step-000000000002/MANIFEST");  // damaged
  fs::create_directory(folder.path() + "/step-1000");
  WriteText(folder.path() + "/step-1000/model.pt", "mine");
  WriteText(folder.path() + "/step-by-step.md", "mine");
  fs::create_directory(folder.path() + "/step-000000000500");
  WriteText(folder.path() + "/step-000000000500/model.pt", "mine");
  const Status removed = RemoveAll(folder.path(), "");
  EXPECT_TRUE(removed.ok()) << removed.error().message;
  EXPECT_EQ(folder.Names(), (std::vector<std::string>{"step-000000000500", "step-1000", "step-by-step.md"}));
  EXPECT_EQ(ReadText(folder.path() + "/step-000000000500/model.pt"), "mine");
  EXPECT_EQ(LoadNewest(folder.path(), kModel).error().code, Code::kCorrupt);
}

TEST(ForeignFiles, ANewStartOfOneRunLeavesTheOthers) {
  const Folder folder;
  const auto publish = [&folder](int64_t step, const char* run) {
    Identity identity;
    identity.run = run;
    identity = MakeIdentity("", identity);
    Copy copy = MakeCopy(step, identity.model);
    copy.meta["identity"] = DescribeIdentity(identity, {});
    Publisher publisher(&PosixFiles(), folder.path(), 9, "m", kSmallChunk);
    ASSERT_TRUE(publisher.Publish(copy).ok());
  };
  publish(1, "default/a");
  publish(2, "default/b");
  publish(3, "default/a");
  const Status removed = RemoveAll(folder.path(), "default/a");
  ASSERT_FALSE(removed.ok());
  EXPECT_THAT(removed.error().message, AllOf(HasSubstr("step-000000000002"), HasSubstr("default/b")));
  EXPECT_THAT(List(folder.path()), ElementsAre(2));
}

// NFS renames a file that is removed while it is open, so its folder is not empty until it is closed.
TEST(ForeignFiles, AFolderIsRemovedWithItsLockClosed) {
  const Folder folder;
  class Nfs final : public ForwardingFiles {
   public:
    Result<Fd> Create(const std::string& path) override {
      auto file = real_.Create(path);
      if (file.ok() && path.ends_with("LOCK")) descriptor_ = file->get();
      return file;
    }
    Status RemoveFolder(const std::string& path) override {
      EXPECT_EQ(::fcntl(descriptor_, F_GETFD), -1) << path << " is removed while its lock is open";
      return real_.RemoveFolder(path);
    }

   private:
    int descriptor_ = -1;
  };
  Nfs files;
  auto temporary = Temporary::Create(&files, folder.path(), 7, "m");
  ASSERT_TRUE(temporary.ok());
  EXPECT_TRUE(temporary->Remove(&files).ok());
  EXPECT_TRUE(folder.Names().empty());
}

TEST(ForeignFiles, AnOldFolderThatCannotBeRemovedDoesNotKeepTheOthers) {
  const Folder folder;
  PublishAll(folder.path(), 1, 3, 3);
  class Stubborn final : public ForwardingFiles {
   public:
    Status Rename(const std::string& from, const std::string& to) override {
      if (from.ends_with("step-000000000001")) return Error{Code::kForbidden, "rename " + from + ": denied"};
      return real_.Rename(from, to);
    }
  };
  Stubborn files;
  Publisher publisher(&files, folder.path(), 1, "m", kSmallChunk);
  ASSERT_TRUE(publisher.Publish(MakeCopy(4)).ok());
  EXPECT_THAT(List(folder.path()), ElementsAre(1, 4));
}

}  // namespace
}  // namespace ringmaster::checkpoint
