// SPDX-License-Identifier: Apache-2.0

#include "cli/write_text.h"

#include <unistd.h>

#include "cli/ui/plain_text.h"

namespace ringmaster::cli {
namespace {

bool IsTerminal(std::FILE* stream) { return ::isatty(::fileno(stream)) == 1; }

// Returns whether `byte` after the two `before` makes a terminal do something: control characters, U+0080 to
// U+009F (C2 80 to C2 9F), and directional marks (E2 80 AA to AE, E2 81 A6 to A9).
bool Acts(const unsigned char (&before)[2], unsigned char byte) {
  if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) return true;
  if (before[1] == 0xc2 && byte >= 0x80 && byte < 0xa0) return true;
  if (before[0] != 0xe2) return false;
  return (before[1] == 0x80 && byte >= 0xaa && byte <= 0xae) ||
         (before[1] == 0x81 && byte >= 0xa6 && byte <= 0xa9);
}

}  // namespace

std::string TextFor(std::FILE* stream, std::string_view text) {
  return IsTerminal(stream) ? TerminalText(text) : std::string(text);
}

void WriteText(std::FILE* stream, std::string_view text) {
  const std::string shown = TextFor(stream, text);
  std::fwrite(shown.data(), 1, shown.size(), stream);
}

ByteWriter::ByteWriter(std::FILE* stream) : stream_(stream), terminal_(IsTerminal(stream)) {}

void ByteWriter::Put(unsigned char byte) {
  if (terminal_ && Acts(before_, byte)) byte = '?';
  std::fputc(byte, stream_);
  before_[0] = before_[1];
  before_[1] = byte;
}

}  // namespace ringmaster::cli
