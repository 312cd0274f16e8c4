// SPDX-License-Identifier: Apache-2.0

// What a terminal can show, and text of a fixed width in columns. Stateless; IsScreen and StdoutTraits read
// the environment.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ringmaster::cli {

struct TerminalTraits {
  int width = 80;
  int height = 24;
  bool colour = false;   // a screen, and NO_COLOR is not set
  bool unicode = false;  // the locale's characters are UTF-8
  bool screen = false;   // IsScreen
};

// Returns whether a file is a terminal that obeys escape sequences. With TERM=dumb, or without TERM, it is
// not: then a program prints lines, as into a pipe.
bool IsScreen(int fd);

// Asks the terminal on stdout. Without one: COLUMNS or 80 columns, no colour and no screen.
TerminalTraits StdoutTraits();

// Returns one character per value, of eight heights between the smallest and the largest; "_.-=*#" without
// Unicode. A value that is not a number is a space. More than `width` values are averaged in groups.
std::string Sparkline(std::span<const double> values, int width, bool unicode);

// Columns that a text takes: UTF-8 characters, without escape sequences. REQUIRES: no wide characters.
int ColumnsOf(std::string_view text);
// Cuts a text without escape sequences to at most `width` columns.
std::string CutToColumns(std::string_view text, int width);

}  // namespace ringmaster::cli
