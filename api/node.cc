// SPDX-License-Identifier: Apache-2.0

#include "api/node.h"

#include <charconv>

#include "api/path.h"

namespace ringmaster::api {
namespace {

constexpr int kShownDepth = 6;  // length of the path in the message about too deep nesting

// Returns false when the value is nested deeper than kMaxDepth. `deep` is then the first part of the path to
// it.
bool Convert(const Json& value, int depth, const Path& path, Node& out, std::string& deep) {
  if (depth > kMaxDepth) return false;
  bool fits = true;
  if (value.is_object()) {
    out.kind = Node::Kind::kObject;
    for (auto child = value.begin(); fits && child != value.end(); ++child) {
      out.members.push_back({child.key(), {}, {}});
      fits = Convert(*child, depth + 1, path.Child(child.key()), out.members.back().value, deep);
    }
  } else if (value.is_array()) {
    out.kind = Node::Kind::kList;
    for (size_t i = 0; fits && i < value.size(); ++i) {
      out.items.emplace_back();
      fits = Convert(value[i], depth + 1, path.Item(i), out.items.back(), deep);
    }
  } else {
    out.scalar = value;
    if (value.is_number() || value.is_boolean()) out.text = DumpJson(value);
  }
  if (!fits && depth == kShownDepth) deep = path.ToString();
  return fits;
}

}  // namespace

Result<Node> NodeFromJson(const Json& value) {
  Node node;
  std::string deep;
  if (!Convert(value, 1, {}, node, deep))
    return Error{Code::kInvalid, fmt::format("{}: nested deeper than {}", deep, kMaxDepth)};
  return node;
}

Json NodeToJson(const Node& node) {
  if (node.kind == Node::Kind::kScalar) return node.scalar;
  if (node.kind == Node::Kind::kList) {
    Json list = Json::array();
    for (const Node& item : node.items) list.push_back(NodeToJson(item));
    return list;
  }
  Json object = Json::object();
  for (const Member& member : node.members) object[member.key] = NodeToJson(member.value);
  return object;
}

std::string Describe(const Node& node) {
  if (node.kind == Node::Kind::kList) return "a list";
  if (node.kind == Node::Kind::kObject) return "an object";
  if (node.scalar.is_number() || node.scalar.is_boolean()) return node.text;
  std::string text = DumpJson(node.scalar);
  constexpr size_t kLongest = 60;
  if (text.size() > kLongest) {
    size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
      --end;  // not inside a character
    text = text.substr(0, end) + "...\"";
  }
  return text;
}

Mark Locate(const Node& root, std::string_view path) {
  const Node* node = &root;
  const auto segments = SplitPath(path);
  if (!segments.ok()) return root.mark;
  for (const PathSegment& segment : *segments) {
    const Node* next = nullptr;
    if (segment.bracketed && node->kind == Node::Kind::kList) {
      size_t index = 0;
      const char* end = segment.text.data() + segment.text.size();
      if (std::from_chars(segment.text.data(), end, index).ptr == end && index < node->items.size()) {
        next = &node->items[index];
      }
    } else {
      next = node->Find(segment.text);
    }
    if (next == nullptr) break;
    if (next->mark.line == 0) return {};  // from --set
    node = next;
  }
  return node->mark;
}

}  // namespace ringmaster::api
