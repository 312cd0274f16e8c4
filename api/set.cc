// SPDX-License-Identifier: Apache-2.0

#include "api/set.h"

#include <charconv>

#include "api/path.h"
#include "api/schema.h"
#include "api/suggest.h"
#include "api/yaml.h"

namespace ringmaster::api {
namespace {

bool IsText(const Schema& schema) {
  return schema.type == Type::kString || schema.type == Type::kIntOrString;
}

// Converts numbers and booleans back to their source text where the table has a string. Clears positions,
// because the value is not in the file.
void Adapt(Node& node, const Schema* schema) {
  node.mark = {};
  if (node.kind == Node::Kind::kScalar && schema != nullptr && IsText(*schema)) {
    if (node.scalar.is_number() || node.scalar.is_boolean()) node.scalar = node.text;
  }
  const bool has_item = schema != nullptr && !schema->item.empty();
  for (Node& item : node.items) Adapt(item, has_item ? &schema->item.front() : nullptr);
  for (Member& member : node.members) {
    member.mark = {};
    const Schema* child = schema == nullptr ? nullptr : schema->Find(member.key);
    Adapt(member.value, has_item ? &schema->item.front() : child);
  }
}

class Setter {
 public:
  Setter(const std::string& path, std::vector<Problem>& problems) : path_(path), problems_(problems) {}

  // Returns the node to assign the value to, or null after reporting a problem.
  Node* Walk(Node& root, const std::vector<PathSegment>& segments) {
    Node* node = &root;
    schema_ = &JobSchema();
    for (const PathSegment& segment : segments) {
      if (node == nullptr || !Enter(segment)) return nullptr;
      node = segment.bracketed && is_list_ ? Item(*node, segment) : Field(*node, segment);
    }
    return node;
  }

  void Report(std::string message) { problems_.push_back({path_, std::move(message), 0, 0}); }

  // The schema of the node that Walk returned; null inside a PodTemplate.
  const Schema* schema() const { return schema_; }

 private:
  // Moves schema_ to the child that `segment` names.
  bool Enter(const PathSegment& segment) {
    is_list_ = schema_ == nullptr ? segment.bracketed : schema_->type == Type::kList;
    if (schema_ == nullptr || schema_->type == Type::kAnyObject) {
      schema_ = nullptr;
      return true;
    }
    if (schema_->type == Type::kList || schema_->type == Type::kMap) {
      if (is_list_ && !segment.bracketed) {
        Report(fmt::format("{} is a list: write [0] for its first entry", last_));
        return false;
      }
      schema_ = &schema_->item.front();
    } else if (schema_->type == Type::kObject) {
      const Schema* child = schema_->Find(segment.text);
      if (child == nullptr || segment.bracketed) {
        Report("unknown field" + SuggestField(*schema_, segment.text));
        return false;
      }
      schema_ = child;
    } else {
      Report(fmt::format("{} has no fields", last_));
      return false;
    }
    last_ = segment.text;
    return true;
  }

  Node* Field(Node& node, const PathSegment& segment) {
    if (node.IsNull()) node = Object(node.mark);
    if (node.kind != Node::Kind::kObject) {
      Report(fmt::format("the manifest has {} where an object is needed", Describe(node)));
      return nullptr;
    }
    if (Node* existing = node.Find(segment.text)) return existing;
    node.members.push_back({segment.text, {}, {}});
    return &node.members.back().value;
  }

  Node* Item(Node& node, const PathSegment& segment) {
    if (node.IsNull()) {
      node = Node();
      node.kind = Node::Kind::kList;
    }
    size_t index = 0;
    const char* end = segment.text.data() + segment.text.size();
    const auto [stop, code] = std::from_chars(segment.text.data(), end, index);
    if (node.kind != Node::Kind::kList || code != std::errc() || stop != end || index > node.items.size()) {
      Report(fmt::format("[{}] is neither an entry of the list nor the next one", segment.text));
      return nullptr;
    }
    if (index == node.items.size()) node.items.emplace_back();
    return &node.items[index];
  }

  static Node Object(Mark mark) {
    Node node;
    node.kind = Node::Kind::kObject;
    node.mark = mark;
    return node;
  }

  const std::string& path_;
  std::vector<Problem>& problems_;
  const Schema* schema_ = nullptr;
  bool is_list_ = false;
  std::string last_;
};

}  // namespace

void ApplySet(Node& root, const std::string& path, const std::string& value, std::vector<Problem>& problems) {
  Setter setter(path, problems);
  const auto segments = SplitPath(path);
  if (!segments.ok()) return setter.Report(segments.error().message);
  if (segments->front().text == "status") return setter.Report("the status is written by the operator");
  Node* place = setter.Walk(root, *segments);
  if (place == nullptr) return;
  const Schema* schema = setter.schema();
  if (value == "null") {
    *place = Node();
    return;
  }
  const bool quoted = value.starts_with('"') || value.starts_with('\'');
  if (value.empty() || (schema != nullptr && IsText(*schema) && !quoted)) {
    *place = Node();
    place->scalar = value;
    return;
  }
  Parsed parsed = ParseYaml(value);
  for (const Problem& problem : parsed.problems) setter.Report(problem.message);
  if (!parsed.problems.empty()) return;
  Adapt(parsed.root, schema);
  *place = std::move(parsed.root);
}

}  // namespace ringmaster::api
