// SPDX-License-Identifier: Apache-2.0

#include "operator/core/capacity/label_selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace ringmaster::core {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// Splits at commas that are not within parentheses.
std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t from = 0;
  bool within = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') within = true;
    if (i < text.size() && text[i] == ')') within = false;
    if (i < text.size() && (text[i] != ',' || within)) continue;
    parts.push_back(Trim(text.substr(from, i - from)));
    from = i + 1;
  }
  return parts;
}

bool IsWord(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '/';
  });
}

// Parses "key in (a,b)" and "key notin (a,b)".
std::optional<Requirement> ParseSet(std::string_view part) {
  const size_t open = part.find('(');
  if (open == std::string_view::npos || part.back() != ')') return std::nullopt;
  const std::string_view before = Trim(part.substr(0, open));
  const size_t space = before.find_first_of(" \t");
  if (space == std::string_view::npos) return std::nullopt;
  const std::string_view op = Trim(before.substr(space));
  if (op != "in" && op != "notin") return std::nullopt;
  Requirement requirement;
  requirement.key = before.substr(0, space);
  requirement.op = op == "in" ? Requirement::Op::kIn : Requirement::Op::kNotIn;
  for (const std::string_view value : Split(part.substr(open + 1, part.size() - open - 2)))
    requirement.values.emplace_back(value);
  return requirement;
}

std::optional<Requirement> ParseRequirement(std::string_view part) {
  if (part.find('(') != std::string_view::npos) return ParseSet(part);
  Requirement requirement;
  if (const size_t at = part.find('='); at != std::string_view::npos) {
    const bool differs = at > 0 && part[at - 1] == '!';
    const size_t value = at + (!differs && at + 1 < part.size() && part[at + 1] == '=' ? 2 : 1);
    requirement.key = Trim(part.substr(0, differs ? at - 1 : at));
    requirement.op = differs ? Requirement::Op::kNotIn : Requirement::Op::kIn;
    requirement.values.emplace_back(Trim(part.substr(value)));
  } else {
    const bool absent = part.starts_with('!');
    requirement.key = Trim(part.substr(absent ? 1 : 0));
    requirement.op = absent ? Requirement::Op::kDoesNotExist : Requirement::Op::kExists;
  }
  return requirement;
}

}  // namespace

Result<LabelSelector> ParseLabelSelector(std::string_view text) {
  LabelSelector selector;
  if (Trim(text).empty()) return selector;
  for (const std::string_view part : Split(text)) {
    std::optional<Requirement> requirement = ParseRequirement(part);
    if (!requirement || requirement->key.empty() || !IsWord(requirement->key) ||
        !std::all_of(requirement->values.begin(), requirement->values.end(), IsWord))
      return Error{Code::kInvalid, fmt::format("\"{}\" is no requirement of a label selector", part)};
    selector.push_back(*std::move(requirement));
  }
  return selector;
}

bool Selects(const LabelSelector& selector, const std::map<std::string, std::string>& labels) {
  return std::all_of(selector.begin(), selector.end(), [&](const Requirement& requirement) {
    using Op = Requirement::Op;
    const auto label = labels.find(requirement.key);
    const bool exists = label != labels.end();
    const bool listed = exists && std::find(requirement.values.begin(), requirement.values.end(),
                                            label->second) != requirement.values.end();
    switch (requirement.op) {
      case Op::kIn:
        return listed;
      case Op::kNotIn:
        return !listed;
      case Op::kExists:
        return exists;
      case Op::kDoesNotExist:
        return !exists;
      default:
        return false;
    }
  });
}

}  // namespace ringmaster::core
