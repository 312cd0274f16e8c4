// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>

#include "tests/unit/checkpoint/snapshots.h"

namespace ringmaster::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Loader, TakesTheNewest) {
  const Folder folder;
  PublishSmall(folder.path(), 100);
  PublishSmall(folder.path(), 9);
  const auto loaded = LoadNewest(folder.path(), kModel);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->step, 100);
  EXPECT_EQ(loaded->path, folder.path() + "/step-000000000100");
  EXPECT_THAT(loaded->skipped, IsEmpty());
  ExpectWhole(*loaded);
  ASSERT_NE(loaded->Find("exponents"), nullptr);
  EXPECT_EQ(loaded->Find("exponents")->type, "i32");
  EXPECT_EQ(loaded->Find("nothing"), nullptr);
  EXPECT_THAT(List(folder.path()), ElementsAre(9, 100));
}

TEST(Loader, AnEmptyFolderIsNotFound) {
  const Folder folder;
  EXPECT_EQ(LoadNewest(folder.path(), "").error().code, Code::kNotFound);
  EXPECT_EQ(LoadNewest(folder.path() + "/nowhere", "").error().code, Code::kNotFound);
  EXPECT_THAT(List(folder.path() + "/nowhere"), IsEmpty());
  // Temporary folders and other folders are no checkpoints.
  fs::create_directory(folder.path() + "/step-000000000003.tmp-m1");
  fs::create_directory(folder.path() + "/step-3");
  WriteText(folder.path() + "/notes.txt", "mine");
  EXPECT_EQ(LoadNewest(folder.path(), "").error().code, Code::kNotFound);
}

TEST(Loader, AnotherModelIsRefused) {
  const Folder folder;
  PublishSmall(folder.path(), 5);
  const auto loaded = LoadNewest(folder.path(), "feedfeedfeedfeed");
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kInvalid);
  EXPECT_THAT(loaded.error().message, AllOf(HasSubstr("step-000000000005"), HasSubstr(kModel),
                                            HasSubstr("feedfeedfeedfeed"), HasSubstr("--fresh")));
  EXPECT_TRUE(LoadNewest(folder.path(), "").ok());
}

TEST(Loader, AllDamagedIsAnErrorNotANewStart) {
  const Folder folder;
  PublishSmall(folder.path(), 5);
  PublishSmall(folder.path(), 6);
  fs::remove(folder.path() + "/step-000000000005/MANIFEST");
  fs::remove(folder.path() + "/step-000000000006/chunk-00002");
  const auto loaded = LoadNewest(folder.path(), kModel);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kCorrupt);
  EXPECT_THAT(loaded.error().message, AllOf(HasSubstr("step-000000000005: has no MANIFEST"),
                                            HasSubstr("chunk-00002: is missing"), HasSubstr("--fresh")));
}

TEST(Loader, FindsTheNewestWithoutReadingIt) {
  const Folder folder;
  EXPECT_EQ(FindNewest(folder.path() + "/nowhere", kModel).step, -1);
  EXPECT_EQ(FindNewest(folder.path(), kModel).step, -1);
  EXPECT_THAT(FindNewest(folder.path(), kModel).text, HasSubstr("has no checkpoint"));
  PublishSmall(folder.path(), 5);
  PublishSmall(folder.path(), 7);
  EXPECT_EQ(FindNewest(folder.path(), kModel).step, 7);
  EXPECT_EQ(FindNewest(folder.path(), "feedfeedfeedfeed").step, -1);
  EXPECT_THAT(FindNewest(folder.path(), "feedfeedfeedfeed").text, HasSubstr("another run"));
  WriteText(folder.path() + "/step-000000000007/MANIFEST", "torn");
  const Newest newest = FindNewest(folder.path(), kModel);
  EXPECT_EQ(newest.step, 5);
  EXPECT_THAT(newest.text,
              AllOf(HasSubstr("is of step 5"), HasSubstr("skipped"), HasSubstr("step-000000000007")));
}

TEST(Loader, LoadsOneGivenFolder) {
  const Folder folder;
  PublishSmall(folder.path(), 5);
  PublishSmall(folder.path(), 6);
  for (const std::string& path :
       {folder.path() + "/step-000000000005", folder.path() + "/step-000000000005/"}) {
    const auto one = Load(path);
    ASSERT_TRUE(one.ok()) << one.error().message;
    EXPECT_EQ(one->step, 5);
  }
  EXPECT_EQ(Load(folder.path())->step, 6);
  fs::rename(folder.path() + "/step-000000000005", folder.path() + "/best");  // a copy may have any name
  EXPECT_EQ(Load(folder.path() + "/best")->step, 5);
  EXPECT_EQ(Load(folder.path() + "/step-000000000007").error().code, Code::kNotFound);
  // Under the name of another step it would count as that step.
  fs::rename(folder.path() + "/best", folder.path() + "/step-000000000009");
  EXPECT_THAT(Load(folder.path() + "/step-000000000009").error().message,
              HasSubstr("is the manifest of step 5"));
  EXPECT_EQ(LoadNewest(folder.path(), kModel)->step, 6);
}

}  // namespace
}  // namespace ringmaster::checkpoint
