// SPDX-License-Identifier: Apache-2.0

#include "cli/launch/ignore_rules.h"

#include <algorithm>

namespace ringmaster::cli::launch {
namespace {

// Removes spaces at the end, except one behind a backslash.
std::string_view WithoutTrailingSpaces(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  while (line.ends_with(' ') && !(line.size() > 1 && line[line.size() - 2] == '\\')) line.remove_suffix(1);
  return line;
}

// Matches one character of a set such as [a-z] or [!x], and removes the set from the pattern.
bool MatchesSet(std::string_view& pattern, char c) {
  size_t i = 1;
  const bool negated = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negated) ++i;
  const size_t first = i;
  bool found = false;
  while (i < pattern.size() && (pattern[i] != ']' || i == first)) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    const char from = pattern[i];
    char to = from;
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      i += 2;
      if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
      to = pattern[i];
    }
    found = found || (from <= c && c <= to);
    ++i;
  }
  if (i >= pattern.size()) return false;  // a set without an end matches nothing
  pattern.remove_prefix(i + 1);
  return found != negated && c != '/';
}

// `begins`: the pattern begins a name, so that `**` spans folders.
bool Matches(std::string_view pattern, std::string_view text, bool begins) {
  while (!pattern.empty()) {
    if (begins && pattern == "**") return !text.empty();
    if (begins && pattern.starts_with("**/")) {
      const std::string_view rest = pattern.substr(3);
      if (Matches(rest, text, true)) return true;
      for (size_t slash = text.find('/'); slash != text.npos; slash = text.find('/', slash + 1))
        if (Matches(rest, text.substr(slash + 1), true)) return true;
      return false;
    }
    const char first = pattern.front();
    if (first == '*') {
      while (pattern.starts_with('*')) pattern.remove_prefix(1);
      for (size_t i = 0; i <= text.size(); ++i) {
        if (Matches(pattern, text.substr(i), false)) return true;
        if (i < text.size() && text[i] == '/') break;
      }
      return false;
    }
    if (text.empty()) return false;
    if (first == '[') {
      if (!MatchesSet(pattern, text.front())) return false;
    } else if (first == '?') {
      if (text.front() == '/') return false;
      pattern.remove_prefix(1);
    } else {
      if (first == '\\' && pattern.size() > 1) pattern.remove_prefix(1);
      if (pattern.front() != text.front()) return false;
      pattern.remove_prefix(1);
    }
    begins = text.front() == '/';
    text.remove_prefix(1);
  }
  return text.empty();
}

}  // namespace

bool MatchesGlob(std::string_view pattern, std::string_view text) { return Matches(pattern, text, true); }

void IgnoreRules::Add(std::string_view folder, std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = WithoutTrailingSpaces(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    Rule rule;
    if (line.starts_with('#')) continue;
    if (line.starts_with('!')) {
      rule.negated = true;
      line.remove_prefix(1);
    }
    if (line.ends_with('/')) {
      rule.folders_only = true;
      line.remove_suffix(1);
    }
    rule.anchored = line.find('/') != line.npos;
    if (line.starts_with('/')) line.remove_prefix(1);
    if (line.empty()) continue;
    rule.folder = folder.empty() ? std::string() : std::string(folder) + "/";
    rule.pattern = line;
    rules_.push_back(std::move(rule));
  }
}

bool IgnoreRules::Ignores(std::string_view path, bool is_folder) const {
  for (auto it = rules_.rbegin(); it != rules_.rend(); ++it) {  // the last rule that matches decides
    const Rule& rule = *it;
    if ((rule.folders_only && !is_folder) || !path.starts_with(rule.folder)) continue;
    std::string_view rest = path.substr(rule.folder.size());
    if (!rule.anchored) rest.remove_prefix(rest.rfind('/') + 1);  // npos + 1 is 0
    if (MatchesGlob(rule.pattern, rest)) return !rule.negated;
  }
  return false;
}

}  // namespace ringmaster::cli::launch
