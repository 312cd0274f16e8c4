// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/wall_time.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace ringmaster::kube {
namespace {

// Removes `count` digits from the head of `text` and returns their value.
std::optional<int> Digits(std::string_view& text, size_t count) {
  if (text.size() < count) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + count, value);
  if (error != std::errc() || end != text.data() + count || text[0] == '-') return std::nullopt;
  text.remove_prefix(count);
  return value;
}

bool Skip(std::string_view& text, char c) {
  if (text.empty() || text[0] != c) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<WallTime> Parse(std::string_view text) {
  namespace chr = std::chrono;
  const auto year = Digits(text, 4);
  if (!year || !Skip(text, '-')) return std::nullopt;
  const auto month = Digits(text, 2);
  if (!month || !Skip(text, '-')) return std::nullopt;
  const auto day = Digits(text, 2);
  if (!day || !Skip(text, 'T')) return std::nullopt;
  const auto hour = Digits(text, 2);
  if (!hour || !Skip(text, ':')) return std::nullopt;
  const auto minute = Digits(text, 2);
  if (!minute || !Skip(text, ':')) return std::nullopt;
  const auto second = Digits(text, 2);
  if (!second || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  int64_t micros = 0;
  if (Skip(text, '.')) {
    int64_t unit = 100'000;
    size_t digits = 0;
    while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
      micros += (text[0] - '0') * unit;
      unit /= 10;
      text.remove_prefix(1);
      ++digits;
    }
    if (digits == 0 || digits > 9) return std::nullopt;
  }
  chr::minutes offset{0};
  if (!Skip(text, 'Z')) {
    const int sign = Skip(text, '+') ? 1 : Skip(text, '-') ? -1 : 0;
    const auto hours = Digits(text, 2);
    if (sign == 0 || !hours || !Skip(text, ':')) return std::nullopt;
    const auto minutes = Digits(text, 2);
    if (!minutes || *hours > 23 || *minutes > 59) return std::nullopt;
    offset = sign * (chr::hours(*hours) + chr::minutes(*minutes));
  }
  const chr::year_month_day date{chr::year(*year), chr::month(static_cast<unsigned>(*month)),
                                 chr::day(static_cast<unsigned>(*day))};
  if (!text.empty() || !date.ok()) return std::nullopt;
  return WallTime(chr::sys_days(date)) + chr::hours(*hour) + chr::minutes(*minute) + chr::seconds(*second) +
         chr::microseconds(micros) - offset;
}

// Uses calendar types: the standard formatting goes through nanoseconds, which overflow in the year 2262.
std::string ToTheSecond(WallTime time) {
  namespace chr = std::chrono;
  const auto day = chr::floor<chr::days>(time);
  const chr::year_month_day date(day);
  const chr::hh_mm_ss clock(chr::floor<chr::seconds>(time - day));
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

}  // namespace

std::string WallSecondsText(WallTime time) { return ToTheSecond(time) + "Z"; }

std::string WallTimeText(WallTime time) {
  const auto micros = time - std::chrono::floor<std::chrono::seconds>(time);
  return fmt::format("{}.{:06}Z", ToTheSecond(time), micros.count());
}

std::optional<WallTime> ParseHttpDate(std::string_view text) {
  namespace chr = std::chrono;
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  if (const size_t comma = text.find(", "); comma != 3) return std::nullopt;
  text.remove_prefix(5);
  const auto day = Digits(text, 2);
  if (!day || !Skip(text, ' ') || text.size() < 4) return std::nullopt;
  const size_t month = kMonths.find(text.substr(0, 3));
  text.remove_prefix(3);
  if (month == std::string_view::npos || month % 3 != 0 || !Skip(text, ' ')) return std::nullopt;
  const auto year = Digits(text, 4);
  if (!year || !Skip(text, ' ')) return std::nullopt;
  const auto hour = Digits(text, 2);
  if (!hour || !Skip(text, ':')) return std::nullopt;
  const auto minute = Digits(text, 2);
  if (!minute || !Skip(text, ':')) return std::nullopt;
  const auto second = Digits(text, 2);
  if (!second || *hour > 23 || *minute > 59 || *second > 60 || text != " GMT") return std::nullopt;
  const chr::year_month_day date{chr::year(*year), chr::month(static_cast<unsigned>(month / 3 + 1)),
                                 chr::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  return WallTime(chr::sys_days(date)) + chr::hours(*hour) + chr::minutes(*minute) + chr::seconds(*second);
}

bool WallClock::Correct(WallTime server, Time now) const {
  // The header has whole seconds, and answers take a while. Machines whose clocks are set differ by less.
  constexpr std::chrono::seconds kTolerance(5);
  const auto error = server + std::chrono::milliseconds(500) - ToWall(now);
  if (std::chrono::abs(error) <= kTolerance) return false;
  *ahead_ += error.count();
  return true;
}

Result<WallTime> ParseWallTime(std::string_view text) {
  if (const auto time = Parse(text)) return *time;
  return Error{Code::kInvalid, fmt::format("not an RFC 3339 time: \"{}\"", text.substr(0, 64))};
}

}  // namespace ringmaster::kube
