// SPDX-License-Identifier: Apache-2.0

// People remove checkpoints and copy them. The last whole one stays, a run is not disturbed, and a copy is
// complete or absent.
#include "worker/checkpoint/maintenance.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "base/pid_lock.h"
#include "base/time.h"
#include "tests/unit/checkpoint/snapshots.h"
#include "worker/checkpoint/catalog.h"
#include "worker/checkpoint/temporary.h"

namespace ringmaster::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Identity RunWithRate(const std::string& run, double rate) {
  Identity identity;
  identity.run = run;
  identity.settings = {{"spec", {{"rate", rate}}}};
  return MakeIdentity("m", identity);
}

void PublishOf(const std::string& folder, int64_t step, const Identity& identity) {
  Copy copy = MakeCopy(step, identity.model);
  copy.meta["identity"] = DescribeIdentity(identity, {});
  Publisher publisher(&PosixFiles(), folder, 9, "m", kSmallChunk);
  ASSERT_TRUE(publisher.Publish(copy).ok());
}

void FlipAByte(const std::string& path) {
  std::string text = ReadText(path);
  text[5] = static_cast<char>(text[5] ^ 1);
  WriteText(path, text);
}

class Removal : public testing::Test {
 protected:
  void SetUp() override {
    for (const int64_t step : {1, 2, 3}) PublishSmall(folder_.path(), step, 9);
  }
  // Returns the refusal, after which all three must be there.
  std::string Refused(const std::vector<int64_t>& steps, bool force = false) {
    const Status removed = RemoveSteps(folder_.path(), steps, force);
    EXPECT_FALSE(removed.ok());
    for (const int64_t step : {1, 2, 3}) EXPECT_TRUE(fs::exists(Path(step) + "/MANIFEST")) << step;
    return removed.ok() ? "" : removed.error().message;
  }
  std::string Path(int64_t step) const { return folder_.path() + "/" + StepName(step); }

  const Folder folder_;
};

TEST_F(Removal, RemovesThoseAndWhatDeadWritersLeft) {
  fs::create_directory(folder_.path() + "/" + TemporaryName(6, "dead"));
  WriteText(folder_.path() + "/" + TemporaryName(6, "dead") + "/LOCK", "");
  WriteText(folder_.path() + "/readme", "");
  WriteText(Path(2) + "/mine", "");
  const Status removed = RemoveSteps(folder_.path(), {1, 2}, false);
  ASSERT_TRUE(removed.ok()) << removed.error().message;
  EXPECT_THAT(folder_.Names(), ElementsAre(std::string(kRunLockName), "readme", StepName(2), StepName(3)));
  EXPECT_TRUE(fs::exists(Path(2) + "/mine"));
  EXPECT_FALSE(fs::exists(Path(2) + "/chunk-00000"));
}

TEST_F(Removal, AStepThatIsNotThereRemovesNone) {
  EXPECT_THAT(Refused({1, 7}), HasSubstr("no checkpoint of step 7"));
  const Folder archive;
  PublishSmall(archive.path(), 9);
  fs::create_directory_symlink(archive.path() + "/" + StepName(9), Path(9));
  EXPECT_THAT(Refused({1, 9}), HasSubstr("is a link"));
}

TEST_F(Removal, TheNewestWholeOneStays) {
  // A job on a cluster does not continue from an older one.
  EXPECT_THAT(Refused({3}), AllOf(HasSubstr("keep step 3"), HasSubstr("--force")));
  EXPECT_THAT(Refused({1, 2, 3}), AllOf(HasSubstr("keep step 3"), HasSubstr("--force")));
  // It has its size, and only reading it shows that it is damaged.
  FlipAByte(Path(3) + "/chunk-00000");
  EXPECT_THAT(Refused({1, 2}), HasSubstr("keep step 2"));
  EXPECT_THAT(Refused({2, 3}), HasSubstr("keep step 2"));
  EXPECT_TRUE(RemoveSteps(folder_.path(), {1, 3}, false).ok());
  EXPECT_TRUE(RemoveSteps(folder_.path(), {2}, true).ok());
  EXPECT_THAT(List(folder_.path()), IsEmpty());
}

TEST_F(Removal, OneThatCannotBeReadMayBeWhole) {
  const std::string chunk = Path(3) + "/chunk-00000";
  fs::remove(chunk);
  fs::create_symlink("chunk-00000", chunk);  // the disk returns an error
  ASSERT_EQ(KindOf(FindDamage(Path(3))), CatalogEntry::Kind::kUnreadable);
  EXPECT_THAT(Refused({3}), AllOf(HasSubstr("may be whole, but cannot be read"), HasSubstr("--force")));
  // It is not counted as the one that stays.
  EXPECT_THAT(Refused({2}), HasSubstr("keep step 2"));
  EXPECT_TRUE(RemoveSteps(folder_.path(), {1}, false).ok());
  EXPECT_TRUE(RemoveSteps(folder_.path(), {3}, true).ok());
}

TEST_F(Removal, ThoseOfAnotherRunDoNotCount) {
  PublishSmall(folder_.path(), 4, 9, "other");
  EXPECT_THAT(Refused({3}), HasSubstr("keep step 3"));
  EXPECT_THAT(Refused({4}), HasSubstr("keep step 4"));
  EXPECT_TRUE(RemoveSteps(folder_.path(), {1, 2}, false).ok());
}

// Reading takes minutes. Writers do not wait so long for the lock of the folder, and what was read may be
// another checkpoint when the lock is taken.
TEST_F(Removal, WritersMayGoOnWhileCheckpointsAreRead) {
  fs::copy(Path(3), folder_.path() + "/good", fs::copy_options::recursive);
  FlipAByte(Path(3) + "/chunk-00000");
  Status removed;
  WorkCounter counter;
  std::atomic<bool> ended = false;
  std::thread removal;
  {
    const FolderLock lock(folder_.path());
    removal = std::thread([&] {
      removed = RemoveSteps(folder_.path(), {3}, false, &counter);
      ended = true;
    });
    const auto has_read = [&] { return counter.total != 0 && counter.done == counter.total; };
    while (!has_read() && !ended) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(has_read()) << "reads only with the lock";
    // A writer publishes it again, as it was.
    fs::rename(Path(3), folder_.path() + "/damaged");
    fs::rename(folder_.path() + "/good", Path(3));
  }
  removal.join();
  ASSERT_FALSE(removed.ok());
  EXPECT_EQ(removed.error().code, Code::kConflict);
  EXPECT_THAT(FindDamage(Path(3)), IsEmpty());
}

TEST_F(Removal, DamagedOnesNeedNoForce) {
  for (const int64_t step : {1, 2, 3}) FlipAByte(Path(step) + "/chunk-00000");
  EXPECT_TRUE(RemoveSteps(folder_.path(), {1, 2, 3}, false).ok());
}

// The file to which a link leads is no lock.
TEST_F(Removal, WritesNoFileBehindALink) {
  WriteText(folder_.path() + "/mine", "text");
  fs::create_symlink("mine", folder_.path() + "/" + std::string(kRunLockName));
  Refused({1}, true);
  EXPECT_EQ(ReadText(folder_.path() + "/mine"), "text");
}

TEST_F(Removal, ALockOfAnotherProgramIsNotWritten) {
  const std::string path = folder_.path() + "/.lock";
  WriteText(path, "text");
  {
    const auto lock = HoldPidLock(path);
    ASSERT_TRUE(lock.ok()) << lock.error().message;
    const auto other = TakePidLock(path);
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code, Code::kConflict);
  }
  EXPECT_EQ(ReadText(path), "text");
  EXPECT_EQ(HoldPidLock(folder_.path() + "/none").error().code, Code::kNotFound);
}

TEST_F(Removal, IsRefusedWhileARunUsesTheFolder) {
  {
    const auto lock = TakePidLock(folder_.path() + "/" + std::string(kRunLockName));
    ASSERT_TRUE(lock.ok());
    EXPECT_THAT(Refused({1}, true), HasSubstr("pid " + std::to_string(::getpid())));
  }
  {
    const auto writer = Temporary::Create(&PosixFiles(), folder_.path(), 4, "alive");
    ASSERT_TRUE(writer.ok());
    EXPECT_THAT(Refused({1}, true), HasSubstr("a run writes a checkpoint"));
  }
  EXPECT_TRUE(RemoveSteps(folder_.path(), {1}, false).ok());
}

TEST(Fork, IsAValidStartThatNamesItsParent) {
  const Folder folder;
  const Identity original = RunWithRate("default/a", 0.1);
  for (const int64_t step : {3, 5}) PublishOf(folder.path(), step, original);
  const std::string to = folder.path() + "/forks/b";
  const auto copy = Fork(folder.path(), 3, to);
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_EQ(fs::path(*copy), fs::canonical(to) / StepName(3));
  EXPECT_THAT(FindDamage(*copy), IsEmpty());

  // The run itself continues from it.
  const auto same = LoadNewest(to, original);
  ASSERT_TRUE(same.ok()) << same.error().message;
  EXPECT_EQ(same->step, 3);
  EXPECT_EQ(same->parent["run"], "default/a");
  EXPECT_EQ(same->parent["step"], 3);
  EXPECT_EQ(same->parent["path"], fs::canonical(folder.path() + "/" + StepName(3)).string());
  const auto expected = Load(folder.path() + "/" + StepName(3));
  ASSERT_EQ(same->arrays.size(), expected->arrays.size());
  for (size_t i = 0; i < same->arrays.size(); ++i)
    EXPECT_TRUE(same->arrays[i].bytes == expected->arrays[i].bytes);

  // A run with other settings names it.
  Identity other = RunWithRate("default/b", 0.2);
  EXPECT_FALSE(LoadNewest(to, other).ok());
  other.from = to;
  const Folder own;
  const auto changed = LoadNewest(own.path(), other);
  ASSERT_TRUE(changed.ok()) << changed.error().message;
  EXPECT_EQ(changed->step, 3);
  EXPECT_THAT(changed->changed,
              ElementsAre("the job is default/b and was default/a", "spec.rate is 0.2 and was 0.1"));
}

TEST(Fork, ADamagedOneIsNotCopied) {
  const Folder folder;
  PublishSmall(folder.path(), 3);
  FlipAByte(folder.path() + "/" + StepName(3) + "/chunk-00002");
  const auto copy = Fork(folder.path(), 3, folder.path() + "/forks/b");
  ASSERT_FALSE(copy.ok());
  EXPECT_EQ(copy.error().code, Code::kCorrupt);
  EXPECT_THAT(copy.error().message, HasSubstr("chunk-00002: is damaged"));
  EXPECT_FALSE(fs::exists(folder.path() + "/forks"));
  fs::remove(folder.path() + "/" + StepName(3) + "/chunk-00002");
  EXPECT_THAT(Fork(folder.path(), 3, folder.path() + "/forks/b").error().message, HasSubstr("is missing"));
}

TEST(Fork, RefusesFoldersThatAreInUse) {
  const Folder folder;
  PublishSmall(folder.path(), 3);
  const auto refusal = [&](const std::string& to) {
    const auto copy = Fork(folder.path(), 3, to);
    EXPECT_FALSE(copy.ok());
    return copy.ok() ? "" : copy.error().message;
  };
  EXPECT_THAT(refusal(folder.path()), HasSubstr("has checkpoints already (the newest is of step 3)"));
  EXPECT_THAT(refusal(folder.path() + "/" + StepName(3) + "/b"), HasSubstr("outside of a checkpoint"));
  EXPECT_THAT(refusal(""), HasSubstr("outside of a checkpoint"));
  const Folder other;
  {
    const auto lock = TakePidLock(other.path() + "/" + std::string(kRunLockName));
    EXPECT_THAT(refusal(other.path()), HasSubstr("in use by another"));
  }
  EXPECT_TRUE(fs::exists(other.path()));
  EXPECT_TRUE(Fork(folder.path(), 3, other.path()).ok());
  EXPECT_THAT(Fork(folder.path(), 4, other.path()).error().message, HasSubstr("no checkpoint of step 4"));
}

TEST(Fork, OfAnOlderBuildHasNoInventedIdentity) {
  const Folder folder;
  PublishSmall(folder.path(), 3);
  ASSERT_TRUE(Fork(folder.path(), 3, folder.path() + "/b").ok());
  const auto loaded = LoadNewest(folder.path() + "/b", kModel);
  ASSERT_TRUE(loaded.ok());
  ExpectWhole(*loaded);
}

}  // namespace
}  // namespace ringmaster::checkpoint
