// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/plain_text.h"

#include <gtest/gtest.h>

namespace ringmaster::cli {
namespace {

TEST(PlainText, RemovesTerminalEscapes) {
  EXPECT_EQ(PlainText("\x1b[31mred\x1b[0m\n"), "red\n");
  EXPECT_EQ(PlainText("\x1b]0;title\aafter"), "after");
  EXPECT_EQ(PlainText("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\"), "link");
  EXPECT_EQ(PlainText("a\x1b(Bb\x1b"
                      "7c"),
            "abc");
  EXPECT_EQ(PlainText("cut\x1b[3"), "cut");
  EXPECT_EQ(PlainText("cut\x1b"), "cut");
  EXPECT_EQ(PlainText("open\x1b]0;no end\nnext"), "open0;no end\nnext") << "hides no later line";
}

TEST(TerminalText, KeepsOnlyColorsAndEndsThemWithTheLine) {
  EXPECT_EQ(TerminalText("\x1b[1;31mred\x1b[0m\x1b]0;title\a\x1b[2Jgone"), "\x1b[1;31mred\x1b[0mgone\x1b[0m");
  EXPECT_EQ(TerminalText("\x1b[38:5:1mone\ntwo\n"), "\x1b[38:5:1mone\x1b[0m\ntwo\n");
  EXPECT_EQ(TerminalText("\x1b[?1mhidden\x1b[>4;2mkeys\x1b[3"), "hiddenkeys");
}

TEST(PlainText, KeepsMarkupAsText) {
  EXPECT_EQ(PlainText("<script>alert(1)</script>"), "<script>alert(1)</script>");
}

TEST(PlainText, RemovesControlCharacters) {
  EXPECT_EQ(PlainText(std::string_view("a\0b\bc\td\x7f", 8)), "abc\td");
  EXPECT_EQ(PlainText("10%\r20%\r\ndone"), "10%\n20%\ndone");
  EXPECT_EQ(PlainText("x\xc2\x9b"
                      "31my"),
            "x31my")
      << "the eight-bit form of ESC [";
  EXPECT_EQ(PlainText("a\xe2\x80\xae"
                      "b"),
            "ab")
      << "right-to-left override";
  EXPECT_EQ(PlainText("a\xe2\x81\xa7"
                      "b\xe2\x81\xac"),
            "ab\xe2\x81\xac")
      << "right-to-left isolate";
}

TEST(PlainText, ReplacesInvalidUtf8) {
  EXPECT_EQ(PlainText("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8e\xaa"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8e\xaa");
  EXPECT_EQ(PlainText("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(PlainText("\xc3"), "\xef\xbf\xbd");
  EXPECT_EQ(PlainText("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd") << "overlong";
  EXPECT_EQ(PlainText("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd") << "surrogate";
}

TEST(LastLines, CountsFromTheEnd) {
  EXPECT_EQ(LastLines("a\nb\nc\n", 2), "b\nc\n");
  EXPECT_EQ(LastLines("a\nb\nc", 1), "c");
  EXPECT_EQ(LastLines("a\nb", 5), "a\nb");
  EXPECT_EQ(LastLines("", 5), "");
}

}  // namespace
}  // namespace ringmaster::cli
