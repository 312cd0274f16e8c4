// SPDX-License-Identifier: Apache-2.0

// Makes the log of a worker safe to show on a page or a terminal: a program may print anything. Pure
// functions.
#pragma once

#include <string>
#include <string_view>

namespace ringmaster::cli {

// Removes terminal escape sequences and control characters other than newline and tab, and replaces invalid
// UTF-8 with U+FFFD. A carriage return starts a new line. HTML stays as it is: the page shows it as text.
std::string PlainText(std::string_view log);

// The same for a terminal: keeps sequences that only set colours and styles, and ends them with the line.
std::string TerminalText(std::string_view log);

// Returns the last `lines` lines of a text.
std::string_view LastLines(std::string_view text, size_t lines);

}  // namespace ringmaster::cli
