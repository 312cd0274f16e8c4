// SPDX-License-Identifier: Apache-2.0

// Validation data that is trained on makes the validation loss worthless, and nothing shows it.
#include "worker/data/split_files.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <filesystem>

#include "tests/unit/data/files.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(SplitFiles, KnowsTheNamesOfPublicDataSets) {
  for (const char* const train :
       {"train.bin", "tiny_shakespeare_train.bin", "fineweb_train_000001.bin", "wiki.train.tokens",
        "wiki.train.raw", "train-00000-of-00002.txt", "TinyStoriesV2-GPT4-train.txt", "train.txt.raw",
        "train/shard.bin", "data/train/test.bin", "training/a"})
    EXPECT_EQ(NamedPart(train), Part::kTrain) << train;
  for (const char* const validation :
       {"val.bin", "tiny_shakespeare_val.bin", "fineweb_val_000000.bin", "wiki.valid.tokens", "valid.txt",
        "validation-00000-of-00001.txt", "dev.txt", "val/0.bin"})
    EXPECT_EQ(NamedPart(validation), Part::kValidation) << validation;
  for (const char* const test : {"test.bin", "wiki.test.tokens", "test/a.txt"})
    EXPECT_EQ(NamedPart(test), Part::kTest) << test;
  for (const char* const other : {"how-to-train-your-dragon.txt", "test-drive.txt", "trainer.txt", "a.bin",
                                  "evaluation.txt", "valid-reasons/a.txt", "0001.bin", ""})
    EXPECT_EQ(NamedPart(other), Part::kUnnamed) << other;
}

TEST(SplitFiles, NamesDivideAFolder) {
  const TempFolder folder;
  const std::string train = folder.Write("train.bin", "12");
  const std::string val = folder.Write("val.bin", "34");
  folder.Write("meta.pkl", "no tokens");
  const auto split = FindSplit(folder.path(), "", ".bin");
  ASSERT_TRUE(split.ok()) << split.error().message;
  EXPECT_THAT(split->train, ElementsAre(train));
  EXPECT_THAT(split->validation, ElementsAre(val));
  EXPECT_THAT(split->notes, ElementsAre(EndsWith(": train.bin for training, val.bin for validation")));
}

TEST(SplitFiles, TestFilesAreForValidationOnlyIfNothingElseIs) {
  const TempFolder folder;
  folder.Write("wiki.train.tokens", "a");
  folder.Write("wiki.test.tokens", "b");
  auto split = FindSplit(folder.path(), "", "");
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(split->validation, ElementsAre(EndsWith("wiki.test.tokens")));
  folder.Write("wiki.valid.tokens", "c");
  split = FindSplit(folder.path(), "", "");
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(split->train, ElementsAre(EndsWith("wiki.train.tokens")));
  EXPECT_THAT(split->validation, ElementsAre(EndsWith("wiki.valid.tokens")));
  EXPECT_THAT(split->notes, ElementsAre(EndsWith("wiki.test.tokens not used")));
}

TEST(SplitFiles, AFileThatNamesNoPartInADividedFolderIsRefused) {
  const TempFolder folder;
  folder.Write("train.bin", "12");
  folder.Write("val.bin", "34");
  folder.Write("more.bin", "56");
  const auto split = FindSplit(folder.path(), "", ".bin");
  ASSERT_FALSE(split.ok());
  EXPECT_THAT(split.error().message,
              AllOf(HasSubstr("more.bin without a part"), HasSubstr("validationPath")));
}

TEST(SplitFiles, AFolderWithoutTrainingNamesIsOneStreamAndSaysSo) {
  const TempFolder folder;
  folder.Write("a.txt", "a");
  folder.Write("test.txt", "b");
  const auto split = FindSplit(folder.path(), "", "");
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->train.size(), 2U);
  EXPECT_THAT(split->validation, IsEmpty());
  EXPECT_THAT(split->notes, ElementsAre(HasSubstr("test.txt is trained on")));
}

TEST(SplitFiles, ValidationPathInsideOfPathIsNotTrainedOn) {
  const TempFolder folder;
  const std::string train = folder.Write("a.txt", "a");
  const std::string held_out = folder.Write("held-out/b.txt", "b");
  std::filesystem::create_directory_symlink(folder.path() + "/held-out", folder.path() + "/link");
  for (const std::string& given : {folder.path() + "/held-out", held_out, folder.path() + "/./held-out/",
                                   folder.path() + "/link", folder.path() + "/link/b.txt"}) {
    const auto split = FindSplit(folder.path(), given, "");
    ASSERT_TRUE(split.ok()) << split.error().message;
    EXPECT_THAT(split->train, ElementsAre(train)) << given;
    EXPECT_EQ(split->validation.size(), 1U) << given;
  }
  const auto all = FindSplit(folder.path() + "/held-out", folder.path(), "");
  ASSERT_TRUE(all.ok());
  EXPECT_THAT(all->train, ElementsAre(held_out));
  EXPECT_THAT(all->validation, ElementsAre(train)) << "and what is trained on is not validated on";
}

TEST(SplitFiles, TestFilesStayOutWhenValidationPathIsGiven) {
  const TempFolder folder;
  const std::string train = folder.Write("train.txt", "a");
  const std::string val = folder.Write("val.txt", "b");
  folder.Write("test.txt", "c");
  const auto split = FindSplit(folder.path(), val, "");
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(split->train, ElementsAre(train));
  EXPECT_THAT(split->validation, ElementsAre(val));
}

TEST(SplitFiles, APathWithoutTrainingDataIsRefused) {
  const TempFolder folder;
  folder.Write("b/b.txt", "b");
  const auto split = FindSplit(folder.path(), folder.path() + "/b", "");
  ASSERT_FALSE(split.ok());
  EXPECT_THAT(split.error().message, HasSubstr("has no file outside of"));
}

Config TokensIn(const std::string& path) {
  Config config;
  config.kind = Kind::kTokens;
  config.path = path;
  config.context = 4;
  config.vocabulary = 50;
  return config;
}

TEST(SplitFiles, TheDatasetHasBothParts) {
  const TempFolder folder;
  folder.Write("train.bin", Tokens16(std::vector<uint16_t>(91, 7)));
  folder.Write("val.bin", Tokens16(std::vector<uint16_t>(11, 9)));
  const auto data = Dataset::Open(TokensIn(folder.path()));
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ((*data)->size(Split::kTrain), 22);
  EXPECT_EQ((*data)->size(Split::kValidation), 2);
  std::vector<int32_t> tokens(4);
  std::vector<int32_t> targets(4);
  ASSERT_TRUE((*data)
                  ->Read(Split::kValidation, std::vector<int64_t>{1}, {.tokens = tokens, .targets = targets})
                  .ok());
  EXPECT_THAT(tokens, ElementsAre(9, 9, 9, 9));
  EXPECT_EQ((*data)->Notes().size(), 1U);
}

template <class T>
std::string Numbers(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const T value = static_cast<T>(i * 7 % 50);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

TEST(SplitFiles, NumbersThatAreNo16BitTokensAreRefused) {
  const TempFolder folder;
  const auto problem = [&](const std::string& name, const std::string& bytes) {
    const auto data = Dataset::Open(TokensIn(folder.Write(name, bytes)));
    return data.ok() ? std::string() : data.error().message;
  };
  EXPECT_THAT(problem("a.bin", Numbers<uint32_t>(400)), AllOf(HasSubstr("32 bits"), HasSubstr("uint16")));
  EXPECT_THAT(problem("b.bin", Numbers<int64_t>(400)), HasSubstr("64 bits"));
  EXPECT_THAT(problem("c.bin", "\x93NUMPY\x01" + Numbers<uint16_t>(400)), HasSubstr("array of NumPy"));
  EXPECT_EQ(problem("d.bin", Numbers<uint16_t>(400)), "");
  EXPECT_EQ(problem("e.bin", std::string(800, '\0')), "") << "a padded file is odd, but not of another width";
}

// Tokens of a vocabulary of 128 thousand have a one in every second place.
TEST(SplitFiles, WideTokensOfALargeVocabularyAreRefused) {
  const TempFolder folder;
  std::string bytes;
  for (uint32_t i = 0; i < 400; ++i) {
    const uint32_t value = i * 7919 % 128256;
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  Config config = TokensIn(folder.Write("a.bin", bytes));
  config.vocabulary = 65536;
  const auto data = Dataset::Open(config);
  ASSERT_FALSE(data.ok());
  EXPECT_THAT(data.error().message, HasSubstr("32 bits"));
}

}  // namespace
}  // namespace ringmaster::data
