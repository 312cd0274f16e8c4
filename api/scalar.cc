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

// 1:30 and 1:30:00.5 are numbers to base 60 in YAML 1.1.
bool IsSexagesimal(std::string_view text) {
  if (TakeDigits(text) == 0 || !text.starts_with(':')) return false;
  while (text.starts_with(':')) {
    text.remove_prefix(1);
    const size_t digits = TakeDigits(text);
    if (digits == 0 || digits > 2) return false;
  }
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    TakeDigits(text);
  }
  return text.empty();
}

PlainScalar Refuse(std::string_view text, const char* why) {
  return {Json(), fmt::format("plain {} {}", text, why)};
}

Json Number(std::string_view text, bool whole) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const char* end = text.data() + text.size();
  if (whole) {
    int64_t signed_value = 0;
    if (std::from_chars(text.data(), end, signed_value).ec == std::errc()) return signed_value;
    uint64_t unsigned_value = 0;
    if (std::from_chars(text.data(), end, unsigned_value).ec == std::errc()) return unsigned_value;
  }
  double value = 0;
  if (std::from_chars(text.data(), end, value).ec != std::errc() || !std::isfinite(value)) return {};
  return value;
}

}  // namespace

PlainScalar ResolvePlain(std::string_view text) {
  static constexpr std::array<std::string_view, 3> kTrue = {"true", "True", "TRUE"};
  static constexpr std::array<std::string_view, 3> kFalse = {"false", "False", "FALSE"};
  static constexpr std::array<std::string_view, 16> kSwitches = {
      "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF"};
  static constexpr std::array<std::string_view, 6> kNotFinite = {".inf", ".Inf", ".INF",
                                                                 ".nan", ".NaN", ".NAN"};
  if (In(text, kTrue)) return {true, ""};
  if (In(text, kFalse)) return {false, ""};
  if (In(text, kSwitches)) {
    return Refuse(
        text, "is a boolean to some readers of YAML and text to others: quote it, or write true or false");
  }
  std::string_view body = text;
  if (body.starts_with('+') || body.starts_with('-')) body.remove_prefix(1);
  if (In(body, kNotFinite))
    return Refuse(text, "is a number that JSON cannot represent: quote it if it is text");
  if (body.empty() || !(IsDigit(body.front()) || body.front() == '.')) return {std::string(text), ""};
  if (IsSexagesimal(body)) return Refuse(text, "is a number to base 60 to some readers of YAML: quote it");
  if (body.size() > 1 && body.front() == '0') {
    const bool prefix = body[1] == 'x' || body[1] == 'X' || body[1] == 'o' || body[1] == 'O' ||
                        body[1] == 'b' || body[1] == 'B';
    if (prefix && body.size() > 2 &&
        body.find_first_not_of("0123456789abcdefABCDEF_", 2) == std::string_view::npos) {
      return Refuse(text, "is a number only to some readers of YAML: quote it, or write the decimal number");
    }
  }
  std::string digits(body);
  std::erase(digits, '_');
  bool whole = false;
  if (!IsDecimal(digits, whole)) return {std::string(text), ""};
  if (digits.size() != body.size()) {
    return Refuse(text, "is a number only to some readers of YAML: quote it, or leave out the '_'");
  }
  if (body.size() > 1 && body[0] == '0' && IsDigit(body[1])) {
    return Refuse(text, "has a leading zero, octal to some readers of YAML: quote it, or leave out the zero");
  }
  Json number = Number(text, whole);
  if (number.is_null()) return Refuse(text, "is too large or too small a number: quote it");
  return {std::move(number), ""};
}

}  // namespace ringmaster::api
