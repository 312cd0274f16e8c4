// SPDX-License-Identifier: Apache-2.0

// Files that change, disappear or are truncated while they are in use.
#include "worker/data/file_pool.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/temp_folder.h"
#include "worker/data/content_hasher.h"

namespace ringmaster::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Holds nothing in memory, and keeps one file open.
constexpr FilePool::Limits kSmall{.held_bytes = 0, .open_files = 1};

Result<std::string> ReadText(const FilePool& pool, size_t file, uint64_t offset, size_t bytes) {
  std::vector<std::byte> buffer;
  RM_ASSIGN(const std::span<const std::byte> view, pool.View(file, offset, bytes, &buffer));
  return std::string(reinterpret_cast<const char*>(view.data()), view.size());
}

std::string WhyNotRead(const FilePool& pool, size_t file, uint64_t offset, size_t bytes, Code code) {
  const auto text = ReadText(pool, file, offset, bytes);
  if (text.ok()) {
    ADD_FAILURE() << "read " << *text;
    return {};
  }
  EXPECT_EQ(text.error().code, code);
  return text.error().message;
}

TEST(FilePool, HoldsFilesUpToItsLimitAndReadsOthers) {
  const TempFolder folder;
  FilePool pool({.held_bytes = 10, .open_files = 1});
  const std::vector<std::string> texts = {"12345", "123456", "67890", "", "x"};
  const std::vector<bool> held = {true, false, true, true, false};
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto added = pool.Add(folder.Write(std::to_string(i), texts[i]));
    ASSERT_TRUE(added.ok()) << added.error().message;
    EXPECT_EQ(*added, i);
    EXPECT_EQ(pool.size(i), texts[i].size());
    EXPECT_EQ(pool.held(i), held[i]) << i;
  }
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(ReadText(pool, i, 0, texts[i].size()).value(), texts[i]);
  }
  EXPECT_EQ(ReadText(pool, 1, 2, 3).value(), "345");
}

TEST(FilePool, TheContentOfACompressedFileTakesItsPlace) {
  const TempFolder folder;
  FilePool pool(kSmall);
  const size_t file = pool.Add(folder.Write("a.gz", "zip")).value();
  const std::string text = "the content";
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  pool.Replace(file, {bytes.begin(), bytes.end()});
  EXPECT_TRUE(pool.held(file));
  EXPECT_EQ(pool.size(file), text.size());
  EXPECT_EQ(ReadText(pool, file, 4, 7).value(), "content");
}

// A mapped file would raise SIGBUS here.
TEST(FilePool, ATruncatedFileIsReportedWithItsSizes) {
  const TempFolder folder;
  FilePool pool(kSmall);
  const std::string path = folder.Write("a", std::string(10'000, 'a'));
  const size_t file = pool.Add(path).value();
  std::filesystem::resize_file(path, 5'000);
  EXPECT_EQ(ReadText(pool, file, 4'000, 1'000).value(), std::string(1'000, 'a'));
  EXPECT_THAT(WhyNotRead(pool, file, 4'500, 1'000, Code::kCorrupt),
              AllOf(HasSubstr(path + ": was truncated while in use: it had 10000 bytes and now has 5000"),
                    HasSubstr("1000 bytes at offset 4500"), HasSubstr("restore the file")));
  // The same when the file was closed in between.
  const size_t other = pool.Add(folder.Write("b", "other")).value();
  EXPECT_EQ(ReadText(pool, other, 0, 5).value(), "other");
  EXPECT_THAT(WhyNotRead(pool, file, 0, 10, Code::kCorrupt),
              HasSubstr("it had 10000 bytes and now has 5000"));
}

TEST(FilePool, AFileThatGrowsKeepsItsSize) {
  const TempFolder folder;
  FilePool pool(kSmall);
  const std::string path = folder.Write("a", "12345");
  const size_t file = pool.Add(path).value();
  std::ofstream(path, std::ios::app) << "678";
  const size_t other = pool.Add(folder.Write("b", "other")).value();
  EXPECT_EQ(ReadText(pool, other, 0, 5).value(), "other");
  EXPECT_EQ(pool.size(file), 5U);
  EXPECT_EQ(ReadText(pool, file, 0, 5).value(), "12345");
}

TEST(FilePool, AnotherFileUnderTheSamePathMustHaveTheSameContent) {
  const TempFolder folder;
  FilePool pool(kSmall);
  const std::string path = folder.Write("a", "12345");
  const size_t file = pool.Add(path).value();
  const size_t other = pool.Add(folder.Write("b", "other")).value();  // closes the first
  std::filesystem::rename(folder.Write("copy", "12345"), path);
  EXPECT_EQ(ReadText(pool, file, 1, 3).value(), "234");
  EXPECT_EQ(ReadText(pool, other, 0, 5).value(), "other");
  std::filesystem::rename(folder.Write("new", "12346"), path);
  EXPECT_THAT(WhyNotRead(pool, file, 0, 5, Code::kCorrupt),
              HasSubstr(path + ": was replaced by a file with other content while in use"));
}

// Two ends of 64 KiB that are equal, and what is between them.
std::string WithMiddle(const std::string& middle) {
  return std::string(65'536, 'a') + middle + std::string(65'536, 'z');
}

void LearnContent(const FilePool& pool, size_t file) {
  ContentHasher hasher(pool, {}, 0);
  ASSERT_TRUE(hasher.AddRange(file, 0, pool.size(file)).ok());
}

TEST(FilePool, AFileOfEqualSizeAndEqualEndsIsComparedAsAWhole) {
  const TempFolder folder;
  FilePool pool(kSmall);
  const std::string path = folder.Write("a", WithMiddle("one"));
  const size_t file = pool.Add(path).value();
  LearnContent(pool, file);
  const size_t other = pool.Add(folder.Write("b", "other")).value();  // closes the first
  std::filesystem::rename(folder.Write("copy", WithMiddle("one")), path);
  EXPECT_EQ(ReadText(pool, file, 65'536, 3).value(), "one");
  EXPECT_EQ(ReadText(pool, other, 0, 5).value(), "other");
  std::filesystem::rename(folder.Write("new", WithMiddle("two")), path);
  EXPECT_THAT(WhyNotRead(pool, file, 65'536, 3, Code::kCorrupt),
              HasSubstr(path + ": was replaced by a file with other content while in use"));
}

TEST(FilePool, AFileThatIsWrittenAgainInPlaceIsComparedAsAWhole) {
  const TempFolder folder;
  FilePool pool(kSmall);
  const std::string path = folder.Write("a", WithMiddle("one"));
  const size_t file = pool.Add(path).value();
  LearnContent(pool, file);
  const auto write = [&](const std::string& bytes, std::chrono::seconds later) {
    folder.Write("a", bytes);  // the open file has it, too
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() + later);
  };
  write(WithMiddle("one"), std::chrono::seconds(10));
  EXPECT_EQ(ReadText(pool, file, 65'536, 3).value(), "one");
  write(WithMiddle("two"), std::chrono::seconds(20));
  EXPECT_THAT(WhyNotRead(pool, file, 65'536, 3, Code::kCorrupt), HasSubstr(path + ": was replaced"));
  write(WithMiddle("one"), std::chrono::seconds(30));
  EXPECT_EQ(ReadText(pool, file, 65'536, 3).value(), "one");
}

// A longer file that is written in place is no file that was appended to.
TEST(FilePool, ALongerFileWrittenInPlaceIsCompared) {
  const TempFolder folder;
  for (const bool reopened : {false, true}) {
    for (const bool learned : {false, true}) {
      FilePool pool(kSmall);
      const std::string path = folder.Write("a", WithMiddle("one"));
      const size_t file = pool.Add(path).value();
      if (learned) LearnContent(pool, file);
      // An append does not exempt the file from later comparisons.
      std::ofstream(path, std::ios::app) << "more";
      EXPECT_EQ(ReadText(pool, file, 65'536, 3).value(), "one");
      if (reopened) {
        const size_t other = pool.Add(folder.Write("b", "other")).value();  // closes the first
        EXPECT_EQ(ReadText(pool, other, 0, 5).value(), "other");
      }
      folder.Write("a", "b" + WithMiddle("one") + "more, and more");  // O_TRUNC: the same inode
      EXPECT_THAT(WhyNotRead(pool, file, 65'536, 3, Code::kCorrupt), HasSubstr(path + ": was replaced"));
    }
  }
}

TEST(FilePool, TheWholeContentOfAFileThatGrewIsCompared) {
  const TempFolder folder;
  FilePool pool(kSmall);
  const std::string path = folder.Write("a", WithMiddle("one"));
  const size_t file = pool.Add(path).value();
  LearnContent(pool, file);
  folder.Write("a", WithMiddle("two") + "more");
  EXPECT_THAT(WhyNotRead(pool, file, 0, 3, Code::kCorrupt), HasSubstr(path + ": was replaced"));
}

TEST(FilePool, AnnouncementsCompareNothing) {
  const TempFolder folder;
  FilePool pool(kSmall);
  const std::string path = folder.Write("a", WithMiddle("one"));
  const size_t file = pool.Add(path).value();
  LearnContent(pool, file);
  std::filesystem::rename(folder.Write("copy", WithMiddle("one")), path);
  const size_t other = pool.Add(folder.Write("b", "other")).value();  // closes the first
  EXPECT_EQ(ReadText(pool, other, 0, 5).value(), "other");
  pool.Announce(file, 0, 100);
  EXPECT_EQ(pool.comparison()->bytes, 0);
  EXPECT_EQ(ReadText(pool, file, 65'536, 3).value(), "one");
  EXPECT_EQ(pool.comparison()->bytes, static_cast<int64_t>(pool.size(file)));
}

// A large file takes minutes: a comparison can be ended, and its verdict is remembered.
TEST(FilePool, AComparisonCanBeInterruptedAndHappensOnce) {
  const TempFolder folder;
  FilePool pool({.held_bytes = 0, .open_files = 2});
  const std::string path = folder.Write("a", WithMiddle("one"));
  const size_t file = pool.Add(path).value();
  LearnContent(pool, file);
  std::filesystem::last_write_time(path,
                                   std::filesystem::file_time_type::clock::now() + std::chrono::seconds(10));
  pool.comparison()->interrupts = 1;
  EXPECT_THAT(WhyNotRead(pool, file, 0, 3, Code::kUnavailable), HasSubstr("was interrupted"));
  pool.comparison()->interrupts = 0;
  const std::atomic<bool> cancel = true;
  std::vector<std::byte> buffer;
  const auto cancelled = pool.View(file, 0, 3, &buffer, &cancel);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, Code::kCancelled);
  EXPECT_EQ(pool.comparison()->bytes, 0);
  const auto size = static_cast<int64_t>(pool.size(file));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] { EXPECT_EQ(ReadText(pool, file, 65'536, 3).value(), "one"); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.comparison()->bytes, size);
  folder.Write("a", WithMiddle("two"));
  std::filesystem::last_write_time(path,
                                   std::filesystem::file_time_type::clock::now() + std::chrono::seconds(20));
  for (int pass = 0; pass < 3; ++pass)
    EXPECT_THAT(WhyNotRead(pool, file, 0, 3, Code::kCorrupt), HasSubstr("was replaced"));
  EXPECT_EQ(pool.comparison()->bytes, 2 * size);
}

// An open file can still be read when its name is gone. A closed one may appear again, so the error lets the
// caller try again.
TEST(FilePool, AFileThatDisappearsMayComeBack) {
  const TempFolder folder;
  FilePool pool(kSmall);
  const std::string path = folder.Write("a", "12345");
  const size_t file = pool.Add(path).value();
  std::filesystem::rename(path, path + ".away");
  EXPECT_EQ(ReadText(pool, file, 0, 5).value(), "12345");
  const size_t other = pool.Add(folder.Write("b", "other")).value();
  EXPECT_EQ(ReadText(pool, other, 0, 5).value(), "other");
  EXPECT_THAT(WhyNotRead(pool, file, 0, 5, Code::kUnavailable), HasSubstr(path + ": No such file"));
  std::filesystem::rename(path + ".away", path);
  EXPECT_EQ(ReadText(pool, file, 0, 5).value(), "12345");
}

TEST(FilePool, SeveralThreadsRead) {
  const TempFolder folder;
  FilePool pool({.held_bytes = 100, .open_files = 2});
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(pool.Add(folder.Write(std::to_string(i), std::string(90, static_cast<char>('a' + i)))).ok());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (size_t i = 0; i < 500; ++i) {
        const size_t file = (i * 7 + t) % 6;
        pool.Announce(file, 0, 90);
        const auto text = ReadText(pool, file, i % 50, 40);
        ASSERT_TRUE(text.ok()) << text.error().message;
        ASSERT_EQ(*text, std::string(40, static_cast<char>('a' + file)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FilePool, RefusesWhatIsNoFile) {
  const TempFolder folder;
  FilePool pool;
  EXPECT_THAT(pool.Add(folder.path()).error().message, HasSubstr("is a folder"));
  EXPECT_THAT(pool.Add("/dev/null").error().message, HasSubstr("is not a regular file"));
  std::filesystem::create_symlink("/nowhere", folder.path() + "/link");
  EXPECT_THAT(pool.Add(folder.path() + "/link").error().message,
              HasSubstr("/link: is a link to /nowhere, which does not exist"));
}

}  // namespace
}  // namespace ringmaster::data
