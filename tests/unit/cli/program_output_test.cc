// SPDX-License-Identifier: Apache-2.0

#include "cli/run/program_output.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/temp_folder.h"

namespace ringmaster::cli {
namespace {

class ProgramOutputTest : public ::testing::Test {
 protected:
  void Add(const std::string& pod, const std::string& text) {
    std::ofstream(folder_.File(pod + ".log"), std::ios::app | std::ios::binary) << text;
  }
  std::vector<std::string> Lines(ProgramOutput& output, bool all = false) {
    std::vector<std::string> lines;
    output.Read([&](std::string_view line) { lines.emplace_back(line); }, all);
    return lines;
  }
  using Texts = std::vector<std::string>;

  const TempFolder folder_;
};

TEST_F(ProgramOutputTest, HasTheLinesOfTheProgram) {
  ProgramOutput output(folder_.path());
  Add("a-1-0", "before rank 0 is known\n");
  EXPECT_EQ(Lines(output), Texts());
  output.Follow("a-1-0");
  EXPECT_EQ(Lines(output), Texts({"before rank 0 is known"}));
  Add("a-1-0", "2026-11-29T00:24:42.102 I agent pod=a-1-0 program pid=7 started\nepoch 1\nepo");
  EXPECT_EQ(Lines(output), Texts({"epoch 1"}));
  Add("a-1-0", "ch 2\n\nlast");
  EXPECT_EQ(Lines(output), Texts({"epoch 2", ""}));
  EXPECT_EQ(Lines(output), Texts());
  EXPECT_EQ(Lines(output, true), Texts({"last"}));
  EXPECT_EQ(Lines(output, true), Texts());
}

TEST_F(ProgramOutputTest, FollowsRankZero) {
  Add("a-1-0", "of an earlier run\n");
  ProgramOutput output(folder_.path());
  output.Follow("a-1-0");
  Add("a-1-0", "one\n");
  EXPECT_EQ(Lines(output), Texts({"one"}));
  output.Follow("a-1-1");
  EXPECT_EQ(Lines(output), Texts());
  Add("a-1-1", "two\n");
  Add("a-1-0", "not of rank 0\n");
  EXPECT_EQ(Lines(output), Texts({"two"}));
}

TEST_F(ProgramOutputTest, ALogThatBeginsAgainIsRead) {
  Add("a-1-0", "of an earlier run, which --fresh removes\n");
  ProgramOutput output(folder_.path());
  output.Follow("a-1-0");
  std::filesystem::remove(folder_.File("a-1-0.log"));
  EXPECT_EQ(Lines(output), Texts());
  Add("a-1-0", "one\n");
  EXPECT_EQ(Lines(output), Texts({"one"}));
}

TEST_F(ProgramOutputTest, ShowsTheNewestOfManyLines) {
  ProgramOutput output(folder_.path());
  output.Follow("a-1-0");
  for (size_t i = 0; i < 3 * ProgramOutput::kMostLines; ++i) Add("a-1-0", std::to_string(i) + "\n");
  const Texts lines = Lines(output);
  ASSERT_EQ(lines.size(), ProgramOutput::kMostLines + 1);
  EXPECT_NE(lines[0].find("a-1-0.log"), std::string::npos);
  EXPECT_EQ(lines.back(), std::to_string(3 * ProgramOutput::kMostLines - 1));
  EXPECT_EQ(Lines(output), Texts());
}

TEST(Shown, IsWhatATerminalShows) {
  EXPECT_EQ(Shown(" 10%|#   | 1/10\r 20%|##  | 2/10\r"), " 20%|##  | 2/10");
  EXPECT_EQ(Shown("\x1b[31mred\x1b[0m\a\tend\r"), "red    end");
  EXPECT_EQ(Shown(""), "");
}

TEST(IsOwnLine, KnowsTheFormOfOurLogs) {
  EXPECT_TRUE(IsOwnLine("2026-11-29T00:24:42.102 W agent x"));
  EXPECT_FALSE(IsOwnLine("2026-11-29T00:24:42.102 INFO x"));
  EXPECT_FALSE(IsOwnLine("2026-11-29 00:24:42.102 W x"));
  EXPECT_FALSE(IsOwnLine("epoch 1"));
}

}  // namespace
}  // namespace ringmaster::cli
