// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/field_text.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace ringmaster::rendezvous {
namespace {

// The length of the character at `at`; 0: none begins there (RFC 3629).
size_t CharacterBytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : uint8_t{0};
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const unsigned char second = byte(1);
  const bool too_long = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool no_character = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return too_long || no_character ? 0 : size;
}

}  // namespace

std::string CutText(const std::string& text, size_t limit) {
  std::string cut;
  for (size_t at = 0; at < text.size();) {
    const size_t size = CharacterBytes(text, at);
    if (cut.size() + std::max<size_t>(size, 1) > limit) break;
    cut += size == 0 ? "?" : text.substr(at, size);
    at += std::max<size_t>(size, 1);
  }
  return cut;
}

std::string PlainName(const std::string& text, size_t limit) {
  std::string plain;
  size_t bytes = 0;
  for (const char c : text) {
    bytes += c == '"' || c == '\\' ? 2 : 1;
    if (bytes > limit) break;
    plain += c < ' ' || c > '~' ? '?' : c;
  }
  return plain;
}

bool IsPlain(const std::string& text, size_t limit) {
  size_t bytes = text.size();
  for (const char c : text) {
    if (c < ' ' || c > '~') return false;
    if (c == '"' || c == '\\') ++bytes;
  }
  return bytes <= limit;
}

}  // namespace ringmaster::rendezvous
