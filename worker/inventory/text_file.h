// SPDX-License-Identifier: Apache-2.0

// Readers of small files in /proc and /sys.
#pragma once

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file.h"

namespace ringmaster::inventory {

// Returns the file without white space at both ends; nullopt when it cannot be read.
inline std::optional<std::string> ReadTrimmed(const std::string& path) {
  Result<std::string> text = ReadFile(path, size_t{1} << 20);
  if (!text.ok()) return std::nullopt;
  const std::string& all = text.value();
  const size_t begin = all.find_first_not_of(" \t\n");
  if (begin == std::string::npos) return std::string();
  return all.substr(begin, all.find_last_not_of(" \t\n") - begin + 1);
}

// Returns the sorted names in a folder; none when it does not exist.
inline std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Returns the number at the start of the text ("4096 kB" -> 4096).
inline std::optional<int64_t> LeadingNumber(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

inline std::optional<int64_t> ReadNumber(const std::string& path) {
  const std::optional<std::string> text = ReadTrimmed(path);
  return text ? LeadingNumber(*text) : std::nullopt;
}

// Returns the value of the first line "key<blanks>: value" of a file such as /proc/cpuinfo.
inline std::optional<std::string> FieldOf(std::string_view text, std::string_view key) {
  size_t line = 0;
  while (line < text.size()) {
    const size_t end = std::min(text.find('\n', line), text.size());
    const std::string_view one = text.substr(line, end - line);
    if (one.starts_with(key)) {
      const size_t colon = one.find(':');
      const size_t blanks = one.find_first_not_of(" \t", key.size());
      if (colon != std::string_view::npos && blanks == colon) {
        const size_t value = one.find_first_not_of(" \t", colon + 1);
        return value == std::string_view::npos ? std::string() : std::string(one.substr(value));
      }
    }
    line = end + 1;
  }
  return std::nullopt;
}

}  // namespace ringmaster::inventory
