// SPDX-License-Identifier: Apache-2.0

#include "cli/history/worker_names.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ringmaster::cli {
namespace {

constexpr size_t kMaxNames = 1'000'000;

struct NumberedName {
  std::string_view stem;
  uint32_t number = 0;
};

std::optional<uint32_t> NumberIn(std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // The number must be the only way to write the text.
  if (error != std::errc() || end != text.data() + text.size() || std::to_string(number) != text) return {};
  return number;
}

std::optional<NumberedName> Split(std::string_view name) {
  size_t digits = name.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) --digits;
  const auto number = NumberIn(name.substr(digits));
  if (!number || name.find_first_of("[]") != std::string_view::npos) return std::nullopt;
  return NumberedName{name.substr(0, digits), *number};
}

std::string NumbersText(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (size_t i = 0, end = 0; i < numbers.size(); i = end) {
    for (end = i + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1; ++end) {
    }
    if (end - i < 3) end = i + 1;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (end - i > 1) text += fmt::format("-{}", numbers[end - 1]);
  }
  return text;
}

// Returns the names of `text`; empty when it is not a short form.
std::vector<std::string> Expand(std::string_view text) {
  const size_t open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with(']')) return {};
  const std::string_view stem = text.substr(0, open);
  std::string_view rest = text.substr(open + 1, text.size() - open - 2);
  std::vector<std::string> names;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const size_t dash = item.find('-');
    const auto first = NumberIn(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : NumberIn(item.substr(dash + 1));
    if (!first || !last || *last < *first || *last - *first >= kMaxNames - names.size()) return {};
    for (uint64_t number = *first; number <= *last; ++number)
      names.push_back(fmt::format("{}{}", stem, number));
    if (comma == std::string_view::npos) return names;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace

std::vector<std::string> ShortNames(const std::vector<std::string>& names) {
  std::vector<std::string> texts;
  for (size_t i = 0, end = 0; i < names.size(); i = end) {
    const auto first = Split(names[i]);
    std::vector<uint32_t> numbers;
    for (end = i; end < names.size(); ++end) {
      const auto next = first ? Split(names[end]) : std::nullopt;
      if (!next || next->stem != first->stem) break;
      numbers.push_back(next->number);
    }
    if (numbers.size() > 1) {
      texts.push_back(fmt::format("{}[{}]", first->stem, NumbersText(numbers)));
    } else {
      texts.push_back(names[i]);
      end = i + 1;
    }
  }
  return texts;
}

std::vector<std::string> LongNames(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& text : names) {
    std::vector<std::string> expanded = Expand(text);
    if (expanded.empty() || expanded.size() + all.size() > kMaxNames)
      all.push_back(text);
    else
      all.insert(all.end(), expanded.begin(), expanded.end());
  }
  return all;
}

}  // namespace ringmaster::cli
