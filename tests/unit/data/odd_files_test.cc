// SPDX-License-Identifier: Apache-2.0

// Text and tokens as people have them: with byte-order marks, line ends of Windows, invalid UTF-8, empty
// files, very large ones, and very many. Each is read byte by byte, or refused with its name.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <fmt/format.h>
#include <cstdlib>
#include <filesystem>

#include "base/open_file.h"
#include "tests/unit/data/files.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Config OddFiles(Kind kind, const std::string& path, int context) {
  Config config;
  config.kind = kind;
  config.path = path;
  config.context = context;
  config.validation_fraction = 0;
  return config;
}

std::vector<int32_t> TokensAt(const Dataset& data, int64_t index) {
  std::vector<int32_t> tokens(static_cast<size_t>(data.shape().context));
  std::vector<int32_t> targets(tokens.size());
  const Status read =
      data.Read(Split::kTrain, std::vector<int64_t>{index}, {.tokens = tokens, .targets = targets});
  EXPECT_TRUE(read.ok()) << read.error().message;
  return tokens;
}

// Returns the text of all samples.
std::string TextOf(const Dataset& data) {
  std::string text;
  for (int64_t i = 0; i < data.size(Split::kTrain); ++i)
    for (const int32_t token : TokensAt(data, i)) text += static_cast<char>(token);
  return text;
}

TEST(OddFiles, TextIsReadByteByByte) {
  const TempFolder folder;
  const struct {
    const char* name;
    std::string bytes;
  } kTexts[] = {{"byte_order_mark", "\xef\xbb\xbfin the beginning"},
                {"windows", "one\r\ntwo\r\n\r\nthree\r\n"},
                {"invalid_utf8", "\xff\xfe\xc3(\xf0\x28\x8c\xbc text \x80"},
                {"empty_lines", "\n\n\n\na\n\n"},
                {"no_line_end", "the end"}};
  for (const auto& text : kTexts) {
    const auto data = Dataset::Open(OddFiles(Kind::kText, folder.Write(text.name, text.bytes), 1));
    ASSERT_TRUE(data.ok()) << data.error().message;
    // The last byte is a target only.
    EXPECT_EQ(TextOf(**data), text.bytes.substr(0, text.bytes.size() - 1)) << text.name;
  }
}

TEST(OddFiles, TextOfUtf16IsRefused) {
  const TempFolder folder;
  const std::string little(
      "\xff\xfe"
      "a\0b\0c\0d\0",
      10);
  EXPECT_THAT(WhyNot(OddFiles(Kind::kText, folder.Write("utf16.txt", little), 2), Code::kInvalid),
              AllOf(HasSubstr("utf16.txt: is not text"), HasSubstr("give UTF-8 text")));
}

TEST(OddFiles, EmptyFilesInAFolderAreNothing) {
  const TempFolder folder;
  folder.Write("texts/0", "");
  folder.Write("texts/1", "abc");
  folder.Write("texts/2", "");
  folder.Write("texts/3", "de");
  folder.Write("texts/9", "");
  const auto data = Dataset::Open(OddFiles(Kind::kText, folder.File("texts"), 1));
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ(TextOf(**data), "abcd");
  folder.Write("nothing/0", "");
  folder.Write("nothing/1", "");
  EXPECT_THAT(WhyNot(OddFiles(Kind::kText, folder.File("nothing"), 1), Code::kInvalid),
              HasSubstr("nothing: is empty"));
}

TEST(OddFiles, FewerSamplesThanABatchAreAStepAndAnEpoch) {
  const StepSamples step = NextStep({.epoch = 4, .position = 0}, 16, 3);
  EXPECT_EQ(step, (StepSamples{.epoch = 4, .position = 0, .count = 3}));
  EXPECT_EQ(MicroBatch(step, 16, 8, 0), (Slice{0, 2}));
  EXPECT_EQ(MicroBatch(step, 16, 8, 1), (Slice{2, 3}));
  EXPECT_EQ(MicroBatch(step, 16, 8, 7), (Slice{3, 3}));
  EXPECT_EQ(Advance({.epoch = 4, .position = 0}, step, 3), (Cursor{.epoch = 5, .position = 0}));
  EXPECT_EQ(StepsPerEpoch(3, 16), 1);
}

// A file with holes has any size and takes no space. Positions above 2^32 tokens are right, on both sides of
// the border, and so is the fingerprint, which samples the file.
TEST(OddFiles, MoreThanFourBillionTokens) {
  const TempFolder folder;
  constexpr int64_t kBorder = int64_t{1} << 32;
  constexpr int kContext = 8;
  for (const Kind kind : {Kind::kTokens, Kind::kText}) {
    const int64_t width = kind == Kind::kTokens ? 2 : 1;
    const std::string path = folder.File(kind == Kind::kTokens ? "large.bin" : "large.txt");
    const Fd file = OpenFile(path, O_RDWR | O_CREAT, 0644);
    ASSERT_TRUE(file.valid());
    if (::ftruncate(file.get(), (kBorder + 100) * width) != 0)
      GTEST_SKIP() << "the file system has no files of " << (kBorder + 100) * width << " bytes";
    const auto put = [&](int64_t token, const std::vector<uint16_t>& values) {
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(::pwrite(file.get(), &values[i], static_cast<size_t>(width),
                           (token + static_cast<int64_t>(i)) * width),
                  width);
    };
    put(0, std::vector<uint16_t>(8192, 'a'));  // looked at when the file is opened
    put(kBorder - 4, {1, 2, 3, 4, 5, 6, 7, 8});
    put(kBorder + 96, {9, 10, 11, 12});
    const auto data = Dataset::Open(OddFiles(kind, path, kContext));
    ASSERT_TRUE(data.ok()) << data.error().message;
    EXPECT_EQ((*data)->size(Split::kTrain), (kBorder + 99) / kContext);
    EXPECT_EQ(TokensAt(**data, kBorder / kContext - 1), (std::vector<int32_t>{0, 0, 0, 0, 1, 2, 3, 4}));
    EXPECT_EQ(TokensAt(**data, kBorder / kContext), (std::vector<int32_t>{5, 6, 7, 8, 0, 0, 0, 0}));
    EXPECT_EQ(TokensAt(**data, (kBorder + 88) / kContext), (std::vector<int32_t>(8, 0)));
    const uint64_t fingerprint = (*data)->Fingerprint();
    put(kBorder + 99, {13});
    EXPECT_NE((*Dataset::Open(OddFiles(kind, path, kContext)))->Fingerprint(), fingerprint);
  }
}

// RINGMASTER_MANY_FILES=1000000 takes about a minute.
TEST(OddFiles, VeryManyFilesInAFolder) {
  const char* const asked = std::getenv("RINGMASTER_MANY_FILES");
  const int files = asked == nullptr ? 3000 : std::atoi(asked);
  const TempFolder folder(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "");
  for (int i = 0; i < files; ++i) {
    const std::string text = fmt::format("{:07}.", i);
    const Fd file = OpenFile(folder.File(fmt::format("part-{:07}.txt", i)), O_WRONLY | O_CREAT, 0644);
    ASSERT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  WorkCounter counter;
  const auto data = Dataset::Open(OddFiles(Kind::kText, folder.path(), 8), &counter);
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ(counter.done, files);
  EXPECT_EQ((*data)->size(Split::kTrain), files - 1);  // the last byte is a target only
  const auto sample = [&](int64_t index) {
    std::string text;
    for (const int32_t token : TokensAt(**data, index)) text += static_cast<char>(token);
    return text;
  };
  EXPECT_EQ(sample(0), "0000000.");
  EXPECT_EQ(sample(files / 2), fmt::format("{:07}.", files / 2));
  EXPECT_EQ(sample(files - 2), fmt::format("{:07}.", files - 2));
  EXPECT_NE((*data)->Fingerprint(), 0U);
}

}  // namespace
}  // namespace ringmaster::data
