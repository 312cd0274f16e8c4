// SPDX-License-Identifier: Apache-2.0

// What a folder of checkpoints has is listed as it is, and damage is found in every file.
#include "worker/checkpoint/catalog.h"

#include <gmock/gmock.h>

#include "tests/unit/checkpoint/snapshots.h"
#include "worker/checkpoint/temporary.h"

namespace ringmaster::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = CatalogEntry::Kind;

std::string EntryPath(const Folder& folder, int64_t step) { return folder.path() + "/" + StepName(step); }

TEST(Catalog, NamesEverythingInTheFolder) {
  const Folder folder;
  const Folder archive;
  PublishSmall(archive.path(), 9);
  for (const int64_t step : {1, 2, 3, 4}) PublishSmall(folder.path(), step, 9);
  fs::remove(EntryPath(folder, 2) + "/chunk-00001");                          // damaged
  fs::remove(EntryPath(folder, 3) + "/MANIFEST");                             // damaged
  WriteText(EntryPath(folder, 4) + "/notes.txt", "mine");                     // whole
  fs::create_directory_symlink(EntryPath(archive, 9), EntryPath(folder, 9));  // whole, elsewhere
  auto live = Temporary::Create(&PosixFiles(), folder.path(), 5, "alive");
  ASSERT_TRUE(live.ok());
  fs::create_directory(folder.path() + "/" + TemporaryName(6, "dead"));
  WriteText(folder.path() + "/" + TemporaryName(6, "dead") + "/LOCK", "");
  WriteText(folder.path() + "/readme", "");
  fs::create_directory(folder.path() + "/" + StepName(7));
  WriteText(EntryPath(folder, 7) + "/model.pt", "");
  WriteText(folder.path() + "/" + std::string(kRunLockName), "");
  WriteText(folder.path() + "/" + std::string(kAttemptName), "");
  fs::create_directory(folder.path() + "/" + std::string(kDataHashesName));

  const auto entries = ListFolder(folder.path());
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  std::vector<std::pair<std::string, Kind>> found;
  for (const CatalogEntry& entry : *entries) found.emplace_back(entry.name, entry.kind);
  using Named = std::pair<std::string, Kind>;
  EXPECT_THAT(found,
              ElementsAre(Named{StepName(1), Kind::kWhole}, Named{StepName(2), Kind::kDamaged},
                          Named{StepName(3), Kind::kDamaged}, Named{StepName(4), Kind::kWhole},
                          Named{StepName(9), Kind::kWhole}, Named{TemporaryName(5, "alive"), Kind::kWritten},
                          Named{TemporaryName(6, "dead"), Kind::kLeftOver}, Named{"readme", Kind::kForeign},
                          Named{StepName(7), Kind::kForeign}));
  EXPECT_THAT((*entries)[1].problem, HasSubstr("chunk-00001: is missing"));
  EXPECT_EQ((*entries)[1].manifest.model, kModel);
  EXPECT_THAT((*entries)[2].problem, HasSubstr("has no MANIFEST"));
  EXPECT_THAT((*entries)[3].other_files, ElementsAre("notes.txt"));
  EXPECT_TRUE((*entries)[4].link);
  EXPECT_GT((*entries)[0].bytes, 200);
  EXPECT_GT((*entries)[0].written_s, 1'500'000'000);
}

TEST(Catalog, FindsOneStepOrNamesThose) {
  const Folder folder;
  PublishSmall(folder.path(), 1);
  PublishSmall(folder.path(), 20);
  EXPECT_EQ(FindStep(folder.path(), 20)->kind, Kind::kWhole);
  const auto none = FindStep(folder.path(), 3);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("no checkpoint of step 3; it has those of 1, 20"));
  EXPECT_EQ(ListFolder(folder.path() + "/none").error().code, Code::kNotFound);
}

TEST(Catalog, EveryDamagedFileIsNamed) {
  const Folder folder;
  PublishSmall(folder.path(), 1);
  const std::string path = EntryPath(folder, 1);
  WorkCounter counter;
  EXPECT_THAT(FindDamage(path, &counter), IsEmpty());
  EXPECT_EQ(counter.Percent(), 100);
  for (const std::string name : {"/chunk-00000", "/chunk-00002"}) {
    std::string text = ReadText(path + name);
    text[5] = static_cast<char>(text[5] ^ 1);  // of the same size
    WriteText(path + name, text);
  }
  fs::remove(path + "/chunk-00003");
  std::vector<std::string> messages;
  for (const Error& error : FindDamage(path)) messages.push_back(error.message);
  EXPECT_THAT(messages,
              ElementsAre(HasSubstr("chunk-00000: is damaged"), HasSubstr("chunk-00002: is damaged"),
                          HasSubstr("chunk-00003: is missing")));
  WriteText(path + "/MANIFEST", "{}");
  ASSERT_EQ(FindDamage(path).size(), 1U);
  EXPECT_THAT(FindDamage(path)[0].message, HasSubstr("MANIFEST"));
}

}  // namespace
}  // namespace ringmaster::checkpoint
