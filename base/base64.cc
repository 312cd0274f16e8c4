// SPDX-License-Identifier: Apache-2.0

#include "base/base64.h"

#include <array>
#include <cstdint>

namespace ringmaster {
namespace {
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}  // namespace

std::string EncodeBase64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = bytes.size() - i;
    uint32_t word = static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << 16;
    if (left > 1) word |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i + 1])) << 8;
    if (left > 2) word |= static_cast<uint8_t>(bytes[i + 2]);
    out += kAlphabet[word >> 18];
    out += kAlphabet[(word >> 12) & 63];
    out += left > 1 ? kAlphabet[(word >> 6) & 63] : '=';
    out += left > 2 ? kAlphabet[word & 63] : '=';
  }
  return out;
}

Result<std::string> DecodeBase64(std::string_view text) {
  static const std::array<int8_t, 256> kValue = [] {
    std::array<int8_t, 256> table{};
    table.fill(-1);
    for (size_t i = 0; i < kAlphabet.size(); ++i)
      table[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
    return table;
  }();
  if (text.size() % 4 != 0) return Error{Code::kInvalid, "base64: length is not a multiple of 4"};
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    const int padding = !last ? 0 : (text[i + 3] != '=' ? 0 : (text[i + 2] != '=' ? 1 : 2));
    uint32_t word = 0;
    for (int k = 0; k < 4; ++k) {
      const int value = k >= 4 - padding ? 0 : kValue[static_cast<uint8_t>(text[i + static_cast<size_t>(k)])];
      if (value < 0) return Error{Code::kInvalid, "base64: unexpected character"};
      word = word << 6 | static_cast<uint32_t>(value);
    }
    out += static_cast<char>(word >> 16);
    if (padding < 2) out += static_cast<char>(word >> 8 & 255);
    if (padding < 1) out += static_cast<char>(word & 255);
  }
  return out;
}

}  // namespace ringmaster
