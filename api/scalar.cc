// SPDX-License-Identifier: Apache-2.0

#include "api/scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace ringmaster::api {
namespace {

constexpr std::string_view kDigits = "0123456789";

template <size_t N>
bool In(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Removes the digits at the start of `text` and returns their number.
size_t TakeDigits(std::string_view& text) {
  const size_t n = std::min(text.find_first_not_of(kDigits), text.size());
  text.remove_prefix(n);
  return n;
}

// Matches [0-9]+ ("." [0-9]*)? | "." [0-9]+, followed by an optional exponent.
bool IsDecimal(std::string_view text, bool& whole) {
  const size_t before = TakeDigits(text);
  whole = before > 0 && text.empty();
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (TakeDigits(text) + before == 0) return false;
  } else if (before == 0) {
    return false;
  }
  if (text.empty()) return true;
  if (text.front() != 'e' && text.front() != 'E') return false;
  text.remove_prefix(1);
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  return TakeDigits(text) > 0 && text.empty();
}

PlainScalar Refuse(std::string_view text, const char* why) {
  return {Json(), fmt::format("plain {} {}", text, why)};
}

// Returns the integer that Go's ParseInt and ParseUint read in base 0: the prefixes 0x, 0o and 0b, and 0 for
// octal. Null: the text is no integer, or too large.
Json Integer(std::string_view digits, bool negative) {
  int base = 10;
  if (digits.size() > 1 && digits.front() == '0') {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    base = prefix == 'x' ? 16 : prefix == 'b' ? 2 : 8;
    digits.remove_prefix(prefix == 'x' || prefix == 'b' || prefix == 'o' ? 2 : 1);
  }
  uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (digits.empty() || error != std::errc() || stop != end) return {};
  if (!negative) {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(value);
    return value;
  }
  if (value > uint64_t{1} << 63) return {};
  return static_cast<int64_t>(~value + 1);
}

// Null: too large or too small.
Json Decimal(std::string_view text) {
  double value = 0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ec != std::errc() || !std::isfinite(value)) return {};
  return value;
}

}  // namespace

PlainScalar ResolvePlain(std::string_view text) {
  static constexpr std::array<std::string_view, 11> kTrue = {"true", "True", "TRUE", "y",  "Y", "yes",
                                                             "Yes",  "YES",  "on",   "On", "ON"};
  static constexpr std::array<std::string_view, 11> kFalse = {"false", "False", "FALSE", "n",   "N",  "no",
                                                              "No",    "NO",    "off",   "Off", "OFF"};
  static constexpr std::array<std::string_view, 6> kNotFinite = {".inf", ".Inf", ".INF",
                                                                 ".nan", ".NaN", ".NAN"};
  if (In(text, kTrue)) return {true, ""};
  if (In(text, kFalse)) return {false, ""};
  std::string_view body = text;
  const bool negative = body.starts_with('-');
  if (negative || body.starts_with('+')) body.remove_prefix(1);
  if (In(body, kNotFinite))
    return Refuse(text, "is a number that JSON cannot represent: quote it if it is text");
  if (body.empty() || text.front() == '_') return {std::string(text), ""};
  // kubectl ignores the underscores of a text that begins with a sign or a digit.
  std::string number(text);
  if (text.front() != '.') std::erase(number, '_');
  const std::string_view digits = std::string_view(number).substr(body.size() == text.size() ? 0 : 1);
  if (digits.empty() || !(IsDigit(digits.front()) || digits.front() == '.')) return {std::string(text), ""};
  if (Json integer = Integer(digits, negative); !integer.is_null()) return {std::move(integer), ""};
  bool whole = false;
  if (!IsDecimal(digits, whole)) return {std::string(text), ""};
  if (whole && digits.size() > 1 && digits.front() == '0') {
    const std::string_view rest = digits.substr(std::min(digits.find_first_not_of('0'), digits.size() - 1));
    return {
        Json(),
        fmt::format("plain {} begins like an octal number and is none: write {}{}, or quote it if it is text",
                    text, negative ? "-" : "", rest)};
  }
  Json decimal = Decimal(number);
  if (decimal.is_null()) return Refuse(text, "is too large or too small a number: quote it");
  return {std::move(decimal), ""};
}

}  // namespace ringmaster::api
