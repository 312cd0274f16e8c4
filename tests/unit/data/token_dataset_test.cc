// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "base/rng.h"
#include "tests/unit/data/files.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Config Make(Kind kind, const std::string& path, int context, int vocabulary = 256) {
  Config config;
  config.kind = kind;
  config.path = path;
  config.context = context;
  config.vocabulary = vocabulary;
  config.validation_fraction = 0;
  return config;
}

struct Sample {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

Sample ReadOne(const Dataset& data, Split split, int64_t index) {
  const auto n = static_cast<size_t>(data.shape().context);
  Sample s{std::vector<int32_t>(n), std::vector<int32_t>(n)};
  const Status read =
      data.Read(split, std::vector<int64_t>{index}, {.tokens = s.tokens, .targets = s.targets});
  EXPECT_TRUE(read.ok()) << read.error().message;
  return s;
}

std::string Header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> fields(256, 0);
  fields[0] = magic;
  fields[1] = version;
  fields[2] = count;
  return {reinterpret_cast<const char*>(fields.data()), 1024};
}

TEST(Text, SamplesAreConsecutiveWindows) {
  const TempFolder folder;
  const auto opened = Dataset::Open(Make(Kind::kText, folder.Write("a.txt", "abcdefghijklm"), 4));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Dataset& data = **opened;
  EXPECT_EQ(data.shape(), (Shape{.tokens = true, .context = 4, .classes = 256}));
  EXPECT_EQ(data.size(Split::kTrain), 3);
  EXPECT_EQ(data.size(Split::kValidation), 0);
  EXPECT_EQ(ReadOne(data, Split::kTrain, 0).tokens, (std::vector<int32_t>{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(ReadOne(data, Split::kTrain, 0).targets, (std::vector<int32_t>{'b', 'c', 'd', 'e'}));
  EXPECT_EQ(ReadOne(data, Split::kTrain, 2).targets, (std::vector<int32_t>{'j', 'k', 'l', 'm'}));
}

TEST(Text, AFolderIsOneStreamInSortedOrder) {
  const TempFolder folder;
  folder.Write("b/one.txt", "cdef");
  folder.Write("a.txt", "ab");
  folder.Write("b/two.txt", "");
  folder.Write("c", "ghi");
  folder.Write(".git/config", "hidden");
  folder.Write(".hidden", "hidden");
  std::filesystem::create_symlink(folder.path() + "/c", folder.path() + "/d");
  const auto opened = Dataset::Open(Make(Kind::kText, folder.path(), 3));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->size(Split::kTrain), 3);  // abcdefghi + ghi
  EXPECT_EQ(ReadOne(**opened, Split::kTrain, 0).targets, (std::vector<int32_t>{'b', 'c', 'd'}));
  EXPECT_EQ(ReadOne(**opened, Split::kTrain, 2).targets, (std::vector<int32_t>{'h', 'i', 'g'}));
}

TEST(Text, PartsReadTheSameAsTheWhole) {
  const TempFolder folder;
  std::string text(3 << 20, ' ');
  SplitMix64 random(4);
  for (char& c : text) c = static_cast<char>('a' + random.Below(26));
  const size_t cut = 1234567;
  const auto whole = Dataset::Open(Make(Kind::kText, folder.Write("whole.txt", text), 100));
  folder.Write("parts/1", text.substr(0, cut));
  folder.Write("parts/2", text.substr(cut));
  const auto parts = Dataset::Open(Make(Kind::kText, folder.path() + "/parts", 100));
  ASSERT_TRUE(whole.ok() && parts.ok());
  ASSERT_EQ((*whole)->size(Split::kTrain), (*parts)->size(Split::kTrain));
  for (int64_t i = 0; i < (*whole)->size(Split::kTrain); i += 97) {
    ASSERT_EQ(ReadOne(**whole, Split::kTrain, i).targets, ReadOne(**parts, Split::kTrain, i).targets) << i;
  }
  const auto at = static_cast<int64_t>(cut / 100);
  ASSERT_EQ(ReadOne(**whole, Split::kTrain, at).tokens, ReadOne(**parts, Split::kTrain, at).tokens);
}

TEST(Text, ValidationIsTheLastPartOrAnotherFile) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 101; ++i) text += static_cast<char>(i + 1);
  Config config = Make(Kind::kText, folder.Write("a.txt", text), 5);
  config.validation_fraction = 0.25;
  const auto share = Dataset::Open(config);
  ASSERT_TRUE(share.ok()) << share.error().message;
  EXPECT_EQ((*share)->size(Split::kTrain), 15);
  EXPECT_EQ((*share)->size(Split::kValidation), 5);
  EXPECT_EQ(ReadOne(**share, Split::kValidation, 0).tokens[0], 15 * 5 + 1);
  config.validation_path = folder.Write("b.txt", "validation");
  const auto apart = Dataset::Open(config);
  ASSERT_TRUE(apart.ok()) << apart.error().message;
  EXPECT_EQ((*apart)->size(Split::kTrain), 20);
  EXPECT_EQ((*apart)->size(Split::kValidation), 1);
  EXPECT_EQ(ReadOne(**apart, Split::kValidation, 0).tokens[0], 'v');
}

TEST(Tokens, FilesWithAndWithoutHeaderAreEqual) {
  const TempFolder folder;
  std::vector<uint16_t> tokens(41);
  std::iota(tokens.begin(), tokens.end(), uint16_t{50200});
  const auto bare = Dataset::Open(Make(Kind::kTokens, folder.Write("a.bin", Tokens16(tokens)), 8, 50257));
  const auto headed = Dataset::Open(
      Make(Kind::kTokens, folder.Write("b.bin", Header(20240520, 1, 41) + Tokens16(tokens)), 8, 50257));
  ASSERT_TRUE(bare.ok()) << bare.error().message;
  ASSERT_TRUE(headed.ok()) << headed.error().message;
  EXPECT_EQ((*bare)->size(Split::kTrain), 5);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(ReadOne(**bare, Split::kTrain, i).tokens, ReadOne(**headed, Split::kTrain, i).tokens);
    EXPECT_EQ(ReadOne(**bare, Split::kTrain, i).targets[7], 50200 + 8 * (i + 1));
  }
}

TEST(Tokens, AFolderReadsItsBinFiles) {
  const TempFolder folder;
  folder.Write("2.bin", Tokens16({3, 4, 5}));
  folder.Write("1.bin", Tokens16({1, 2}));
  folder.Write("readme.md", "odd");
  const auto opened = Dataset::Open(Make(Kind::kTokens, folder.path(), 4));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(ReadOne(**opened, Split::kTrain, 0).targets, (std::vector<int32_t>{2, 3, 4, 5}));
}

TEST(Tokens, TheFingerprintDependsOnContentAndSplitNotOnPath) {
  const TempFolder a;
  const TempFolder b;
  const std::string text(2000000, 'x');
  std::string other = text;
  other[0] = 'y';
  const auto of = [](const Config& config) { return (*Dataset::Open(config))->Fingerprint(); };
  const uint64_t base = of(Make(Kind::kText, a.Write("f", text), 8));
  EXPECT_EQ(base, of(Make(Kind::kText, b.Write("g", text), 8)));
  EXPECT_NE(base, of(Make(Kind::kText, b.Write("g", text), 9)));
  EXPECT_NE(base, of(Make(Kind::kText, b.Write("g", other), 8)));
  EXPECT_NE(base, of(Make(Kind::kText, b.Write("g", text + "x"), 8)));
}

TEST(Tokens, TheFingerprintOfAFolderDoesNotDependOnItsPath) {
  const TempFolder folder;
  folder.Write("data/a.txt", "the first file");
  folder.Write("data/b.txt", "the second file");
  folder.Write("copy/1", "the first file");
  folder.Write("copy/2", "the second file");
  folder.Write("swapped/1", "the second file");
  folder.Write("swapped/2", "the first file");
  std::filesystem::create_symlink(folder.path() + "/data", folder.path() + "/link");
  const auto of = [&](const std::string& path) {
    const auto opened = Dataset::Open(Make(Kind::kText, folder.path() + path, 8));
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return opened.ok() ? (*opened)->Fingerprint() : 0;
  };
  const uint64_t base = of("/data");
  for (const char* const same : {"/data/", "/data//", "/./data", "/link", "/link/../data", "/copy"})
    EXPECT_EQ(of(same), base) << same;
  EXPECT_NE(of("/swapped"), base);
}

// A vocabulary below the range of the tokens must not cost a scan of all data at each start, and still no
// token outside it may reach the model.
TEST(Tokens, ATokenOutsideTheVocabularyInALargeFileIsFoundWhenItIsRead) {
  const TempFolder folder;
  const std::string path = folder.path() + "/large.bin";
  folder.Write("large.bin", "");
  std::filesystem::resize_file(path, (70 << 20));  // not held in memory; zeros without space on disk
  const int64_t bad = 20'000'003;
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(bad * 2);
    file.write(Tokens16({999}).data(), 2);
  }
  const auto opened = Dataset::Open(Make(Kind::kTokens, path, 16, 999));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Sample s{std::vector<int32_t>(16), std::vector<int32_t>(16)};
  const auto read = [&](int64_t index) {
    return (*opened)->Read(Split::kTrain, std::vector<int64_t>{index},
                           {.tokens = s.tokens, .targets = s.targets});
  };
  EXPECT_TRUE(read(bad / 16 - 1).ok());
  const Status found = read(bad / 16);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::kInvalid);
  EXPECT_THAT(found.error().message,
              AllOf(HasSubstr("large.bin: has token 999 at offset 40000006, outside a vocabulary of 999"),
                    HasSubstr("at least 1000")));
  EXPECT_TRUE(Dataset::Open(Make(Kind::kTokens, path, 16, 1000)).ok());
}

TEST(Tokens, ATokenOutsideTheVocabularyAtTheEndOfALargeFileIsFoundByOpen) {
  const TempFolder folder;
  const std::string path = folder.Write("large.bin", Tokens16({1, 2, 3}));
  std::filesystem::resize_file(path, (70 << 20) - 2);
  std::ofstream(path, std::ios::app | std::ios::binary).write(Tokens16({700}).data(), 2);
  EXPECT_THAT(WhyNot(Make(Kind::kTokens, path, 16, 700), Code::kInvalid),
              HasSubstr("has token 700 at offset 73400318, outside a vocabulary of 700"));
}

TEST(Text, AFileThatCannotBeReadIsNotLeftOut) {
  const TempFolder folder;
  folder.Write("a.txt", "some text for two samples");
  folder.Write("b.md", "other text");
  const Config config = Make(Kind::kText, folder.path(), 4);
  std::filesystem::create_symlink("/nowhere/b.txt", folder.path() + "/b.txt");
  EXPECT_THAT(WhyNot(config, Code::kNotFound),
              AllOf(HasSubstr("/b.txt: is a link to /nowhere/b.txt, which does not exist"),
                    HasSubstr("remove the link or restore the file")));
  std::filesystem::remove(folder.path() + "/b.txt");
  std::filesystem::create_symlink("loop.txt", folder.path() + "/loop.txt");
  EXPECT_THAT(WhyNot(config, Code::kUnavailable), HasSubstr("/loop.txt: Too many levels of symbolic links"));
  EXPECT_THAT(WhyNot(Make(Kind::kText, folder.path() + "/loop.txt", 4), Code::kUnavailable),
              HasSubstr("/loop.txt: Too many levels of symbolic links"));
}

TEST(Text, ErrorsNameTheProblem) {
  const TempFolder folder;
  EXPECT_THAT(WhyNot(Make(Kind::kText, "", 4), Code::kInvalid), HasSubstr("path is empty"));
  EXPECT_THAT(WhyNot(Make(Kind::kText, folder.path() + "/no.txt", 4), Code::kNotFound),
              AllOf(HasSubstr("/no.txt: No such file"), HasSubstr("check the path")));
  EXPECT_THAT(WhyNot(Make(Kind::kText, folder.path(), 4), Code::kInvalid), HasSubstr("has no files"));
  EXPECT_THAT(WhyNot(Make(Kind::kText, folder.Write("empty", ""), 4), Code::kInvalid), HasSubstr("is empty"));
  EXPECT_THAT(WhyNot(Make(Kind::kText, folder.Write("short", "abcd"), 4), Code::kInvalid),
              AllOf(HasSubstr("has 4 tokens, too few"), HasSubstr("at least 5")));
  EXPECT_THAT(WhyNot(Make(Kind::kText, folder.Write("z.gz", Gzip("text text text")), 4), Code::kInvalid),
              AllOf(HasSubstr("z.gz: is compressed"), HasSubstr("decompress")));
  EXPECT_THAT(WhyNot(Make(Kind::kText, folder.Write("z.bin", Tokens16({1, 2, 3, 4})), 4), Code::kInvalid),
              AllOf(HasSubstr("zero bytes"), HasSubstr("kind: tokens")));
  EXPECT_THAT(WhyNot(Make(Kind::kText, folder.Write("high", "abc\xc3\xa4"), 2, 128), Code::kInvalid),
              AllOf(HasSubstr("has token 195 at offset 3"), HasSubstr("vocabulary of 128"),
                    HasSubstr("at least 196")));
  EXPECT_THAT(WhyNot(Make(Kind::kText, "/dev/zero", 4), Code::kInvalid), HasSubstr("not a regular file"));
  Config fraction = Make(Kind::kText, folder.Write("good", "abcdefgh"), 2);
  fraction.validation_fraction = 1;
  EXPECT_THAT(WhyNot(fraction, Code::kInvalid), HasSubstr("below 1"));
  Config validation = Make(Kind::kText, folder.path() + "/good", 2);
  validation.validation_path = folder.path() + "/nope";
  EXPECT_THAT(WhyNot(validation, Code::kNotFound), HasSubstr("/nope"));
  if (geteuid() != 0) {  // root reads everything
    const std::string closed = folder.Write("closed", "abcdefgh");
    std::filesystem::permissions(closed, std::filesystem::perms::none);
    EXPECT_THAT(WhyNot(Make(Kind::kText, closed, 2), Code::kForbidden), HasSubstr("Permission denied"));
  }
}

TEST(Tokens, ErrorsNameTheProblem) {
  const TempFolder folder;
  const std::string some = Tokens16({1, 2, 3, 4, 5, 6});
  const auto why = [&](const std::string& bytes, Code code, int vocabulary = 256) {
    return WhyNot(Make(Kind::kTokens, folder.Write("t.bin", bytes), 2, vocabulary), code);
  };
  EXPECT_THAT(why("", Code::kInvalid), HasSubstr("is empty"));
  EXPECT_THAT(why(some + "x", Code::kCorrupt), HasSubstr("odd number of bytes (13)"));
  EXPECT_THAT(why(some, Code::kInvalid, 6), AllOf(HasSubstr("token 6"), HasSubstr("at least 7")));
  EXPECT_THAT(why(Header(20240520, 1, 7) + some, Code::kCorrupt),
              HasSubstr("truncated: its header says 7 tokens, it has 6"));
  EXPECT_THAT(why(Header(20240520, 1, 5) + some, Code::kCorrupt), HasSubstr("damaged"));
  EXPECT_THAT(why(Header(20240520, 2, 6) + some, Code::kInvalid), HasSubstr("version 2"));
  EXPECT_THAT(why(Header(20240520, 1, 6).substr(0, 100), Code::kCorrupt), HasSubstr("within the header"));
  EXPECT_THAT(why(Header(20240801, 7, 6) + some + some, Code::kInvalid), HasSubstr("32-bit tokens"));
  EXPECT_THAT(why(Header(20240520, 1, 0), Code::kInvalid), HasSubstr("is empty"));
}

}  // namespace
}  // namespace ringmaster::data
