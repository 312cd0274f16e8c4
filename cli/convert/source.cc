// SPDX-License-Identifier: Apache-2.0

#include "cli/convert/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "api/path.h"

namespace ringmaster::cli::convert {
namespace {

using api::Node;

const Node* Step(const Node* node, const api::PathSegment& segment) {
  if (node == nullptr || !segment.bracketed) return node == nullptr ? nullptr : node->Find(segment.text);
  size_t index = 0;
  std::from_chars(segment.text.data(), segment.text.data() + segment.text.size(), index);
  return index < node->items.size() ? &node->items[index] : nullptr;
}

}  // namespace

const Node* Source::Find(const std::string& path) const {
  const auto segments = api::SplitPath(path);
  if (!segments.ok()) return nullptr;
  const Node* node = &root_;
  for (const api::PathSegment& segment : *segments) node = Step(node, segment);
  return node == nullptr || node->IsNull() ? nullptr : node;
}

const Node* Source::Take(const std::string& path) {
  used_.insert(path);
  return Find(path);
}

std::optional<std::string> Source::TakeText(const std::string& path) {
  const Node* node = Take(path);
  if (node == nullptr) return std::nullopt;
  if (node->scalar.is_string()) return node->scalar.get<std::string>();
  Refuse(path, fmt::format("must be a string (got {})", Describe(*node)));
  return std::nullopt;
}

std::optional<int64_t> Source::TakeInteger(const std::string& path) {
  const Node* node = Take(path);
  if (node == nullptr) return std::nullopt;
  if (node->scalar.is_number_integer()) return node->scalar.get<int64_t>();
  Refuse(path, fmt::format("must be an integer (got {})", Describe(*node)));
  return std::nullopt;
}

std::optional<bool> Source::TakeFlag(const std::string& path) {
  const Node* node = Take(path);
  if (node == nullptr) return std::nullopt;
  if (node->scalar.is_boolean()) return node->scalar.get<bool>();
  Refuse(path, fmt::format("must be true or false (got {})", Describe(*node)));
  return std::nullopt;
}

std::optional<Json> Source::TakeObject(const std::string& path) {
  const Node* node = Take(path);
  if (node == nullptr) return std::nullopt;
  if (node->kind == Node::Kind::kObject) return NodeToJson(*node);
  Refuse(path, fmt::format("must be an object (got {})", Describe(*node)));
  return std::nullopt;
}

void Source::Note(const std::string& path, std::string message) {
  remarks_.push_back({path, std::move(message), false, Locate(root_, path)});
}

void Source::Refuse(const std::string& path, std::string message) {
  remarks_.push_back({path, std::move(message), true, Locate(root_, path)});
}

bool Source::refused() const {
  return std::any_of(remarks_.begin(), remarks_.end(), [](const Remark& remark) { return remark.refused; });
}

void Source::NoteUnused(std::string (*remedy)(const std::string& path)) { Collect(root_, "", remedy); }

void Source::Collect(const Node& node, const std::string& path,
                     std::string (*remedy)(const std::string& path)) {
  if (node.IsNull() || used_.contains(path)) return;
  const auto is_inside = [&](const std::string& used) {
    return path.empty() || (used.size() > path.size() && api::IsUnder(used, path));
  };
  if (std::any_of(used_.begin(), used_.end(), is_inside)) {
    for (const api::Member& member : node.members)
      Collect(member.value, path.empty() ? member.key : path + "." + member.key, remedy);
    for (size_t i = 0; i < node.items.size(); ++i)
      Collect(node.items[i], fmt::format("{}[{}]", path, i), remedy);
    return;
  }
  const std::string advice = remedy(path);
  Note(path, advice.empty() ? "has no counterpart and was left out" : "was left out: " + advice);
}

}  // namespace ringmaster::cli::convert
