// SPDX-License-Identifier: Apache-2.0

// The one place where the command line writes for people. Much of what it writes is foreign: output of
// programs, conditions, names, files. A terminal obeys escape sequences and directional overrides, which
// could hide or imitate lines, set titles or answer questions; so it gets only colours. A file or another
// program gets every byte.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace ringmaster::cli {

// Returns the text as `stream` (stdout or stderr) may get it.
std::string TextFor(std::FILE* stream, std::string_view text);

// Writes TextFor(stream, text).
void WriteText(std::FILE* stream, std::string_view text);

// Formats a text and writes it.
template <class... Arguments>
void Print(std::FILE* stream, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  WriteText(stream, fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Writes bytes that arrive one by one, such as those of a model, with the same result. On a terminal a
// character that must not be shown becomes a question mark.
class ByteWriter {
 public:
  explicit ByteWriter(std::FILE* stream);
  void Put(unsigned char byte);

 private:
  std::FILE* const stream_;
  const bool terminal_;
  unsigned char before_[2] = {};  // the last bytes
};

}  // namespace ringmaster::cli
