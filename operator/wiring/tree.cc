// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/tree.h"

#include <algorithm>
#include <utility>

namespace ringmaster::wiring {

const Json* Find(const Json& root, std::initializer_list<const char*> path) {
  const Json* at = &root;
  for (const char* key : path) {
    if (!at->is_object()) return nullptr;
    const auto member = at->find(key);
    if (member == at->end()) return nullptr;
    at = &*member;
  }
  return at;
}

std::string Text(const Json& root, std::initializer_list<const char*> path) {
  const Json* value = Find(root, path);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

Json& ObjectIn(Json& parent, const char* key) {
  Json& value = parent[key];
  if (!value.is_object()) value = Json::object();
  return value;
}

Json& ListIn(Json& parent, const char* key) {
  Json& value = parent[key];
  if (!value.is_array()) value = Json::array();
  return value;
}

Json* FindByKey(Json& list, const char* key, const std::string& value) {
  if (!list.is_array()) return nullptr;
  for (Json& item : list) {
    if (Text(item, {key}) == value) return &item;
  }
  return nullptr;
}

void AddOnce(Json& list, Json value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(std::move(value));
}

}  // namespace ringmaster::wiring
