// SPDX-License-Identifier: Apache-2.0

// A manifest as a tree that remembers where everything stood. Value types; the depth is bounded (64) by
// everything that builds one, so recursion over it is safe.
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
  std::string text;  // of a number, as it was written
  std::vector<Node> items;
  std::vector<Member> members;  // in the order of the file
  Mark mark;
  bool reported = false;  // a problem was already reported here: what it holds is a guess

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

// kInvalid when it is nested deeper than kMaxDepth.
Result<Node> NodeFromJson(const Json& value);
Json NodeToJson(const Node& node);

// "four", 12, a list: for messages. Long and unprintable text is shortened and escaped.
std::string Describe(const Node& node);

// Where the value at `path` (spec.restart.rules[0].action) stands, or its nearest ancestor that exists. Line
// 0 when that is not from a file.
Mark Locate(const Node& root, std::string_view path);

}  // namespace ringmaster::api
