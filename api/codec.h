// SPDX-License-Identifier: Apache-2.0

// Reads structs from trees and writes them as JSON, by the field tables. A member of the tree that CheckTree
// rejects is skipped, so that rules over the other fields can still be checked. Pure functions.
#pragma once

#include "api/fields.h"
#include "api/node.h"

namespace ringmaster::api {

template <HasTable S>
void ReadValue(const Node& node, S& out);
template <HasTable S>
Json WriteValue(const S& value);

inline void ReadValue(const Node& node, std::string& out) {
  if (node.scalar.is_string()) out = node.scalar.get_ref<const std::string&>();
  if (node.scalar.is_number_integer()) out = DumpJson(node.scalar);  // int-or-string
}
inline void ReadValue(const Node& node, bool& out) {
  if (node.scalar.is_boolean()) out = node.scalar.get<bool>();
}
inline void ReadValue(const Node& node, int64_t& out) {
  if (!node.scalar.is_number_integer()) return;
  if (node.scalar.is_number_unsigned() && node.scalar.get<uint64_t>() > INT64_MAX) return;
  out = node.scalar.get<int64_t>();
}
inline void ReadValue(const Node& node, int32_t& out) {
  int64_t wide = out;
  ReadValue(node, wide);
  if (wide >= INT32_MIN && wide <= INT32_MAX) out = static_cast<int32_t>(wide);
}
inline void ReadValue(const Node& node, Json& out) { out = NodeToJson(node); }

template <class T>
void ReadValue(const Node& node, std::optional<T>& out) {
  ReadValue(node, out.emplace());
}
template <class T>
void ReadValue(const Node& node, std::vector<T>& out) {
  out.clear();
  for (const Node& item : node.items) ReadValue(item, out.emplace_back());
}
template <class T>
void ReadValue(const Node& node, std::map<std::string, T>& out) {
  out.clear();
  for (const Member& member : node.members) ReadValue(member.value, out[member.key]);
}

template <HasTable S>
void ReadValue(const Node& node, S& out) {
  ForEachField<S>([&](const auto& field) {
    const Node* child = node.Find(field.name);
    if (child != nullptr && !child->IsNull()) ReadValue(*child, out.*field.member);
  });
}

inline Json WriteValue(const std::string& value) { return value; }
inline Json WriteValue(const Json& value) { return value; }
inline Json WriteValue(bool value) { return value; }
inline Json WriteValue(int32_t value) { return value; }
inline Json WriteValue(int64_t value) { return value; }

template <class T>
Json WriteValue(const std::optional<T>& value) {
  return value.has_value() ? WriteValue(*value) : Json();
}
template <class T>
Json WriteValue(const std::vector<T>& value) {
  Json list = Json::array();
  for (const T& item : value) list.push_back(WriteValue(item));
  return list;
}
template <class T>
Json WriteValue(const std::map<std::string, T>& value) {
  Json object = Json::object();
  for (const auto& [key, item] : value) object[key] = WriteValue(item);
  return object;
}

template <HasTable S>
Json WriteValue(const S& value) {
  Json object = Json::object();
  const S defaults{};
  ForEachField<S>([&](const auto& field) {
    if (field.rules.required || value.*field.member != defaults.*field.member) {
      object[field.name] = WriteValue(value.*field.member);
    }
  });
  return object;
}

}  // namespace ringmaster::api
