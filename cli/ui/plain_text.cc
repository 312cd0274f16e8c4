// SPDX-License-Identifier: Apache-2.0

#include "cli/ui/plain_text.h"

namespace ringmaster::cli {
namespace {

bool IsFinalByte(char c) { return c >= 0x40 && c <= 0x7e; }

// Returns the length of the escape sequence at the start of `text`, which begins with ESC.
size_t EscapeLength(std::string_view text) {
  if (text.size() < 2) return 1;
  if (text[1] == '[') {
    size_t i = 2;
    while (i < text.size() && text[i] != '\n' && !IsFinalByte(text[i])) ++i;
    return i < text.size() && text[i] != '\n' ? i + 1 : i;
  }
  // Strings such as the title of a window end with BEL or ESC \.
  if (std::string_view("]PX^_").find(text[1]) != std::string_view::npos) {
    for (size_t i = 2; i < text.size() && text[i] != '\n'; ++i) {
      if (text[i] == '\a') return i + 1;
      if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '\\') return i + 2;
    }
    return 2;
  }
  size_t i = 1;
  while (i < text.size() && text[i] >= 0x20 && text[i] <= 0x2f) ++i;
  return i < text.size() && text[i] >= 0x30 && text[i] <= 0x7e ? i + 1 : i;
}

// Returns whether an escape sequence sets colours and styles, and nothing else.
bool IsColor(std::string_view sequence) {
  return sequence.size() >= 3 && sequence.starts_with("\x1b[") && sequence.ends_with('m') &&
         sequence.substr(2, sequence.size() - 3).find_first_not_of("0123456789;:") == std::string_view::npos;
}

// Returns the length of the valid UTF-8 character at the start of `text`, or 0.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : (first & 0xf0) == 0xe0        ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) >= 0xa0;
  const bool too_large = first == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

std::string Convert(std::string_view log, bool keep_colors) {
  std::string plain;
  plain.reserve(log.size());
  bool colored = false;
  const auto end_colors = [&] {
    if (colored) plain += "\x1b[0m";
    colored = false;
  };
  while (!log.empty()) {
    const char c = log[0];
    if (c == '\x1b') {
      const std::string_view sequence = log.substr(0, EscapeLength(log));
      if (keep_colors && IsColor(sequence)) {
        plain += sequence;
        colored = true;
      }
      log.remove_prefix(sequence.size());
      continue;
    }
    if (c == '\n' || c == '\r') end_colors();
    if (c == '\r') {
      if (log.size() < 2 || log[1] != '\n') plain += '\n';
      log.remove_prefix(1);
      continue;
    }
    const size_t length = CharacterLength(log);
    const bool control = length == 1 && ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f);
    // U+0080 to U+009F are control characters too; terminals obey some of them.
    const bool control_c1 = length == 2 && c == '\xc2' && static_cast<unsigned char>(log[1]) < 0xa0;
    // Directional overrides could make a line look like another one.
    const bool direction =
        length == 3 && ((log.starts_with("\xe2\x80") && log[2] >= '\xaa' && log[2] <= '\xae') ||
                        (log.starts_with("\xe2\x81") && log[2] >= '\xa6' && log[2] <= '\xa9'));
    if (length == 0)
      plain += "\xef\xbf\xbd";
    else if (!control && !control_c1 && !direction)
      plain += log.substr(0, length);
    log.remove_prefix(length == 0 ? 1 : length);
  }
  end_colors();
  return plain;
}

}  // namespace

std::string PlainText(std::string_view log) { return Convert(log, false); }

std::string TerminalText(std::string_view log) { return Convert(log, true); }

std::string_view LastLines(std::string_view text, size_t lines) {
  size_t begin = text.size();
  if (begin > 0 && text[begin - 1] == '\n') --begin;
  for (size_t seen = 0; begin > 0; --begin)
    if (text[begin - 1] == '\n' && ++seen == lines) break;
  return text.substr(begin);
}

}  // namespace ringmaster::cli
