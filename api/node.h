// SPDX-License-Identifier: Apache-2.0

// A manifest as a tree in which every value has its position in the text. Value types. Every function that
// builds a tree bounds its depth by kMaxDepth, so recursion over it is safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace ringmaster::api {

inline constexpr int kMaxDepth = 64;

struct Mark {
  int line = 0;    // 1-based; 0: not from a file
  int column = 0;  // 1-based, in bytes
  bool operator==(const Mark&) const = default;
};

struct Member;

struct Node {
  enum class Kind : uint8_t { kScalar, kList, kObject };
  Kind kind = Kind::kScalar;
  Json scalar;       // null, boolean, number or string
  std::string text;  // the source text of a number or boolean
  std::vector<Node> items;
  std::vector<Member> members;  // in the order of the file
  Mark mark;
  bool reported = false;  // a problem was reported for this node, so its value is a guess

  bool IsNull() const { return kind == Kind::kScalar && scalar.is_null(); }
  const Node* Find(std::string_view key) const;
  Node* Find(std::string_view key);
};

struct Member {
  std::string key;
  Mark mark;
  Node value;
};

inline const Node* Node::Find(std::string_view key) const {
  for (const Member& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}
inline Node* Node::Find(std::string_view key) {
  return const_cast<Node*>(static_cast<const Node*>(this)->Find(key));
}

// Errors: kInvalid when the value is nested deeper than kMaxDepth.
Result<Node> NodeFromJson(const Json& value);
Json NodeToJson(const Node& node);

// Describes a value for messages: "four", 12, a list. Shortens long text and escapes unprintable text.
std::string Describe(const Node& node);

// Returns the position of the value at `path` (spec.restart.rules[0].action) or of its nearest existing
// ancestor. Line 0 means that the value is not from a file.
Mark Locate(const Node& root, std::string_view path);

}  // namespace ringmaster::api
