// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/log_file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

constexpr size_t kAll = 1 << 30;

class LogFileTest : public ::testing::Test {
 protected:
  // Lines of a log have the local time: here UTC and five and a half hours.
  static void SetUpTestSuite() {
    ::setenv("TZ", "Asia/Kolkata", 1);
    ::tzset();
  }
  static void TearDownTestSuite() {
    ::unsetenv("TZ");
    ::tzset();
  }
  void Write(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  std::string Until(const std::string& time, size_t bytes = kAll) {
    auto text = LogUntil(path_, time, bytes);
    EXPECT_TRUE(text.ok()) << text.error().message;
    return text.ok() ? *text : "";
  }

  TempFolder folder_;
  const std::string path_ = folder_.path() + "/w.log";
};

TEST_F(LogFileTest, TheLinesUpToAFailure) {
  const std::string before =
      "output of the loader\n"
      "2026-01-02T08:34:05.000 I trainer starts\n"
      "Traceback (most recent call last):\n"
      "2026-01-02 08:40:00 the program's time counts for nothing\n"
      "2026-01-02T08:34:06.678 W agent lost\n"
      "final output\n";
  Write(before + "2026-01-02T08:34:06.679 I agent starts\nmore\n");
  EXPECT_EQ(Until("2026-01-02T03:04:06.678Z"), before);
  EXPECT_EQ(Until("2026-01-02T03:04:06.678Z", 14), "\nfinal output\n");
  EXPECT_EQ(Until("2026-01-02T03:04:04.999Z"), "output of the loader\n");
  EXPECT_EQ(Until("2026-01-03T00:00:00.000Z"), *EndOfLog(path_, kAll));
}

TEST_F(LogFileTest, ALogWithoutTimesIsWhole) {
  Write("one\ntwo");
  EXPECT_EQ(Until("2026-01-02T03:04:06.678Z"), "one\ntwo");
}

TEST_F(LogFileTest, ALongLog) {
  std::string expected;
  const auto line = [](int i) {
    char text[64];
    std::snprintf(text, sizeof text, "2026-01-02T08:%02d:%02d.%03d I line\n", i / 60000, i / 1000 % 60,
                  i % 1000);
    return std::string(text);
  };
  // More than a block, in which some lines are long and many have no time.
  std::string all;
  for (int i = 0; i < 20'000; ++i) {
    all += line(i) + (i % 7 == 0 ? std::string(static_cast<size_t>(i % 9000), 'x') + "\n" : "");
    if (i == 12'345) expected = all;
  }
  Write(all);
  EXPECT_TRUE(Until("2026-01-02T02:30:12.345Z") == expected);
}

TEST_F(LogFileTest, Errors) {
  for (const char* time :
       {"", "now", "2026-01-02T03:04:06Z", "2026-01-02T03:04:06.678", "2026-01-02T03:04:06.678ZZ"})
    EXPECT_EQ(LogUntil(path_, time, kAll).error().code, Code::kInvalid) << time;
  EXPECT_NE(LogUntil(path_, "2026-01-02T03:04:06.678Z", kAll).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace ringmaster::cli
