// SPDX-License-Identifier: Apache-2.0

#include "cli/convert/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "api/path.h"

namespace ringmaster::cli::convert {
namespace {

using api::Node;

constexpr const char* kRuntime = "runtime";

const Node* Step(const Node* node, const api::PathSegment& segment) {
  if (node == nullptr || !segment.bracketed) return node == nullptr ? nullptr : node->Find(segment.text);
  size_t index = 0;
  std::from_chars(segment.text.data(), segment.text.data() + segment.text.size(), index);
  return index < node->items.size() ? &node->items[index] : nullptr;
}

}  // namespace

void Source::AddRuntime(const Node& runtime, std::string reference) {
  runtime_ = &runtime;
  reference_ = std::move(reference);
}

const Node* Source::Find(const std::string& path) const {
  const auto segments = api::SplitPath(path);
  if (!segments.ok()) return nullptr;
  const bool in_runtime = runtime_ != nullptr && segments->front().text == kRuntime;
  const Node* node = in_runtime ? runtime_ : &root_;
  for (size_t i = in_runtime ? 1 : 0; i < segments->size(); ++i) node = Step(node, (*segments)[i]);
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

void Source::Note(const std::string& path, std::string message) { Add(path, std::move(message), false); }

void Source::Refuse(const std::string& path, std::string message) { Add(path, std::move(message), true); }

void Source::Add(const std::string& path, std::string message, bool refused) {
  const std::string_view prefix = "runtime.";
  api::Mark mark;
  if (runtime_ == nullptr || !path.starts_with(prefix)) {
    mark = Locate(root_, path);
  } else if (mark = Locate(*runtime_, path.substr(prefix.size())); mark.line == 0) {
    mark = Locate(root_, reference_);
  }
  remarks_.push_back({path, std::move(message), refused, mark});
}

bool Source::refused() const {
  return std::any_of(remarks_.begin(), remarks_.end(), [](const Remark& remark) { return remark.refused; });
}

void Source::NoteUnused(std::string (*remedy)(const std::string& path)) {
  Collect(root_, "", remedy);
  if (runtime_ != nullptr) Collect(*runtime_, kRuntime, remedy);
}

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
