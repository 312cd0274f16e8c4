// SPDX-License-Identifier: Apache-2.0

// Parsing of the line-based texts of this folder (choice tables, plans): a line is words separated by one or
// more spaces.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

namespace ringmaster::cuda {

// Removes the first line from `text` and returns it without its newline.
inline std::string_view NextLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

inline std::vector<std::string_view> SplitWords(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const size_t end = line.find(' ');
    if (end != 0) words.push_back(line.substr(0, end));
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  }
  return words;
}

// Returns whether the whole word is a number, and stores it.
template <class Number>
bool ParseNumber(std::string_view word, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace ringmaster::cuda
