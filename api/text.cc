// SPDX-License-Identifier: Apache-2.0

#include "api/text.h"

#include <algorithm>

namespace ringmaster::api {
namespace {

// Returns the length in bytes of the valid sequence at the start of `text`; 0 when it is invalid.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  size_t length = 1;
  if (first >= 0x80) {
    if (first >= 0xC2 && first <= 0xDF) {
      length = 2;
    } else if (first >= 0xE0 && first <= 0xEF) {
      length = 3;
    } else if (first >= 0xF0 && first <= 0xF4) {
      length = 4;
    } else {
      return 0;
    }
  }
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (length < 3) return length;
  const unsigned char second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F;
  const bool beyond = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || beyond ? 0 : length;
}

}  // namespace

int CodePoints(std::string_view text) {
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return static_cast<int>(std::count_if(text.begin(), text.end(), starts));
}

Mark FindBadByte(std::string_view text) {
  Mark mark{1, 1};
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text.front());
    const size_t length = SequenceLength(text);
    if (length == 0 || (c < 0x20 && c != '\t' && c != '\n' && c != '\r')) return mark;
    text.remove_prefix(length);
    mark = c == '\n' ? Mark{mark.line + 1, 1} : Mark{mark.line, mark.column + static_cast<int>(length)};
  }
  return {};
}

std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

Mark InCharacters(std::string_view text, Mark mark) {
  if (mark.line == 0) return mark;
  text = WithoutByteOrderMark(text);
  for (int line = 1; line < mark.line; ++line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return mark;
    text.remove_prefix(end + 1);
  }
  return {mark.line, 1 + CodePoints(text.substr(0, static_cast<size_t>(mark.column - 1)))};
}

}  // namespace ringmaster::api
