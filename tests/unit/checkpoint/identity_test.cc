// SPDX-License-Identifier: Apache-2.0

// A run continues only from a checkpoint of the same run and settings, or from one that spec.checkpoint.from
// names. A checkpoint of another state is not the published one.
#include <gmock/gmock.h>

#include "tests/unit/checkpoint/snapshots.h"

namespace ringmaster::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Identity Of(const std::string& run, double rate, int layers = 2) {
  Identity identity;
  identity.run = run;
  identity.settings = {{"spec", {{"rate", rate}, {"model", {{"layers", layers}}}}}};
  identity.notes = {{"revision", 2}};
  identity.fixed = {"spec.model"};
  return MakeIdentity("m", identity);
}

Copy CopyOf(int64_t step, const Identity& identity, const std::string& state = "") {
  Copy copy = MakeCopy(step, identity.model);
  copy.meta["identity"] = DescribeIdentity(identity, {});
  copy.state = state;
  return copy;
}

Status PublishCopy(const std::string& folder, const Copy& copy, int keep = 3) {
  Publisher publisher(&PosixFiles(), folder, keep, "m", kSmallChunk);
  return publisher.Publish(copy);
}

TEST(Identity, ChangedSettingsAreNamed) {
  const Folder folder;
  ASSERT_TRUE(PublishCopy(folder.path(), CopyOf(3, Of("default/a", 0.1))).ok());
  EXPECT_TRUE(LoadNewest(folder.path(), Of("default/a", 0.1)).ok());
  const auto rate = LoadNewest(folder.path(), Of("default/a", 0.2));
  ASSERT_FALSE(rate.ok());
  EXPECT_EQ(rate.error().code, Code::kInvalid);
  EXPECT_THAT(rate.error().message,
              AllOf(HasSubstr("step-000000000003"), HasSubstr("spec.rate is 0.2 and was 0.1"),
                    HasSubstr("spec.checkpoint.path"), Not(HasSubstr("layers"))));
  EXPECT_THAT(LoadNewest(folder.path(), Of("default/b", 0.1)).error().message,
              HasSubstr("the job is default/b and was default/a"));
  const Newest newest = FindNewest(folder.path(), Of("default/a", 0.2));
  EXPECT_EQ(newest.step, -1);
  EXPECT_THAT(newest.text, HasSubstr("spec.rate is 0.2 and was 0.1"));
}

TEST(Identity, FromAcceptsChangesAndTheyAreRecorded) {
  const Folder parent;
  ASSERT_TRUE(PublishCopy(parent.path(), CopyOf(3, Of("default/a", 0.1))).ok());
  ASSERT_TRUE(PublishCopy(parent.path(), CopyOf(5, Of("default/a", 0.1))).ok());
  const Folder own;
  Identity fork = Of("default/b", 0.2);
  for (const std::string& from :
       {parent.path() + "/step-000000000003", parent.path() + "/step-000000000003/"}) {
    fork.from = from;
    const auto loaded = LoadNewest(own.path(), fork);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded->step, 3);
    EXPECT_THAT(loaded->changed,
                ElementsAre("the job is default/b and was default/a", "spec.rate is 0.2 and was 0.1"));
    EXPECT_EQ(loaded->parent["run"], "default/a");
    EXPECT_EQ(loaded->parent["step"], 3);
  }
  fork.from = parent.path();  // the newest of it
  EXPECT_EQ(LoadNewest(own.path(), fork)->step, 5);
  // The run's own checkpoints go first.
  Copy next = CopyOf(4, fork);
  next.meta["identity"]["parent"] = {{"run", "default/a"}, {"step", 3}};
  ASSERT_TRUE(PublishCopy(own.path(), next).ok());
  const auto continued = LoadNewest(own.path(), fork);
  ASSERT_TRUE(continued.ok()) << continued.error().message;
  EXPECT_EQ(continued->step, 4);
  EXPECT_THAT(continued->changed, IsEmpty());
  EXPECT_EQ(continued->parent["step"], 3);
}

TEST(Identity, FromTheSameFolderChangesTheRateOnTheWay) {
  const Folder folder;
  ASSERT_TRUE(PublishCopy(folder.path(), CopyOf(3, Of("default/a", 0.1), "s3")).ok());
  Identity changed = Of("default/a", 0.2);
  changed.from = folder.path() + "/step-000000000003";
  EXPECT_EQ(FindNewest(folder.path(), changed).step, 3);
  ASSERT_TRUE(LoadNewest(folder.path(), changed).ok());
  // The state of the parent is published already. Later ones stand next to it, and it is not removed.
  EXPECT_TRUE(PublishCopy(folder.path(), CopyOf(3, changed, "s3")).ok());
  for (const int64_t step : {4, 5, 6}) ASSERT_TRUE(PublishCopy(folder.path(), CopyOf(step, changed), 1).ok());
  EXPECT_THAT(List(folder.path()), ElementsAre(3, 6));
  EXPECT_EQ(LoadNewest(folder.path(), changed)->step, 6);
  // The old settings do not continue from the new ones.
  EXPECT_FALSE(LoadNewest(folder.path(), Of("default/a", 0.1)).ok());
}

TEST(Identity, FromDoesNotAcceptAnotherModelNorNothing) {
  const Folder parent;
  ASSERT_TRUE(PublishCopy(parent.path(), CopyOf(3, Of("default/a", 0.1))).ok());
  const Folder own;
  Identity fork = Of("default/a", 0.1, 9);
  fork.from = parent.path();
  EXPECT_THAT(LoadNewest(own.path(), fork).error().message,
              AllOf(HasSubstr("of another run"), HasSubstr("spec.model.layers is 9 and was 2")));
  fork.from = own.path() + "/nowhere";
  const auto missing = LoadNewest(own.path(), fork);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("spec.checkpoint.from"), HasSubstr("/nowhere")));
}

TEST(Identity, NotesAreReportedAndDoNotPrevent) {
  const Folder folder;
  ASSERT_TRUE(PublishCopy(folder.path(), CopyOf(3, Of("default/a", 0.1))).ok());
  Identity other = Of("default/a", 0.1);
  other.notes["revision"] = 3;
  const auto loaded = LoadNewest(folder.path(), other);
  ASSERT_TRUE(loaded.ok());
  EXPECT_THAT(loaded->noted, ElementsAre("revision is 3 and was 2"));
}

TEST(Identity, ACheckpointWithoutOneIsRefusedUnlessNamed) {
  const Folder folder;
  PublishSmall(folder.path(), 3);  // of an older release
  Identity ours = Of("default/a", 0.1);
  EXPECT_THAT(LoadNewest(folder.path(), ours).error().message, HasSubstr("does not say more"));
  ours.from = folder.path();
  EXPECT_EQ(LoadNewest(folder.path(), ours)->step, 3);
}

TEST(Identity, ACheckpointOfAnotherRunIsNeverReplaced) {
  const Folder folder;
  ASSERT_TRUE(PublishCopy(folder.path(), CopyOf(4, Of("default/a", 0.1), "x")).ok());
  const Status other = PublishCopy(folder.path(), CopyOf(4, Of("default/b", 0.2), "y"));
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, Code::kConflict);
  EXPECT_THAT(other.error().message, AllOf(HasSubstr("default/a"), HasSubstr("another folder")));
  EXPECT_EQ(LoadNewest(folder.path(), Of("default/a", 0.1))->step, 4);
}

// A worker whose memory is broken was outvoted after it had written.
TEST(Identity, ACheckpointOfAnotherStateIsReplaced) {
  const Folder folder;
  const Identity run = Of("default/a", 0.1);
  ASSERT_TRUE(PublishCopy(folder.path(), CopyOf(4, run, "broken")).ok());
  Copy good = CopyOf(4, run, "voted");
  good.arrays[0].bytes[0] ^= std::byte{1};
  ASSERT_TRUE(PublishCopy(folder.path(), good).ok());
  const auto loaded = LoadNewest(folder.path(), run);
  EXPECT_EQ(loaded->state, "voted");
  EXPECT_EQ(loaded->arrays[0].bytes, good.arrays[0].bytes);
}

TEST(Identity, ACopyThatMemoryChangedIsNotWritten) {
  const Folder folder;
  auto writer = Writer::Create(folder.path(), 1, "m").value();
  const Copy copy = MakeCopy(4);
  Snapshot snapshot = Borrow(copy);
  snapshot.state = "agreed";
  std::string seen = "agreed";
  snapshot.hash_state = [&seen](const std::vector<Array>& arrays) { return arrays.empty() ? "" : seen; };
  seen = "changed";
  ASSERT_TRUE(writer->Start(snapshot).ok());
  const Status written = writer->Wait();
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::kCorrupt);
  EXPECT_THAT(written.error().message, AllOf(HasSubstr("changed"), HasSubstr("agreed")));
  EXPECT_TRUE(folder.Names().empty());
  seen = "agreed";
  ASSERT_TRUE(writer->Start(snapshot).ok());
  ASSERT_TRUE(writer->Wait().ok());
  EXPECT_EQ(LoadNewest(folder.path(), kModel)->state, "agreed");
}

}  // namespace
}  // namespace ringmaster::checkpoint
