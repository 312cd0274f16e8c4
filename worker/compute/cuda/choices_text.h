// SPDX-License-Identifier: Apache-2.0

// Reading tables of choices, whose lines are words with one or more spaces between them.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

namespace ringmaster::cuda {

// Takes the next line, without its end, off `text`.
inline std::string_view NextLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

inline std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const size_t end = line.find(' ');
    if (end != 0) words.push_back(line.substr(0, end));
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  }
  return words;
}

// The whole word is the number.
template <class Number>
bool Read(std::string_view word, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace ringmaster::cuda
