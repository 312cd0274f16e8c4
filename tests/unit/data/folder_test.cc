// SPDX-License-Identifier: Apache-2.0

#include "worker/data/folder.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/temp_folder.h"

namespace ringmaster::data {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(FilesBelow, FollowsLinksToFolders) {
  const TempFolder elsewhere;
  elsewhere.Write("b.txt", "b");
  const TempFolder folder;
  folder.Write("a.txt", "a");
  fs::create_directory_symlink(elsewhere.path(), folder.File("shard"));
  fs::create_directory_symlink(elsewhere.path(), folder.File(".hidden"));
  const auto files = FilesBelow(folder.path());
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_THAT(*files, ElementsAre(folder.File("a.txt"), folder.File("shard/b.txt")));
}

TEST(FilesBelow, ALinkToAFolderThatContainsItIsRefused) {
  const TempFolder folder;
  folder.Write("a.txt", "a");
  fs::create_directory(folder.File("deep"));
  fs::create_directory_symlink(folder.path(), folder.File("deep/loop"));
  const auto files = FilesBelow(folder.path());
  ASSERT_FALSE(files.ok());
  EXPECT_THAT(files.error().message, AllOf(HasSubstr("deep/loop"), HasSubstr("contains it")));
}

TEST(FilesBelow, LinksInACircleAreRefused) {
  const TempFolder a;
  const TempFolder b;
  a.Write("a.txt", "a");
  fs::create_directory_symlink(b.path(), a.File("b"));
  fs::create_directory_symlink(a.path(), b.File("a"));
  const auto files = FilesBelow(a.path());
  ASSERT_FALSE(files.ok());
  EXPECT_THAT(files.error().message, HasSubstr(a.path()));
}

}  // namespace
}  // namespace ringmaster::data
