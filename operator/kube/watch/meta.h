// What every object says of itself. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "operator/kube/watch/sink.h"

namespace ringmaster::kube {

struct Meta {
  std::string key;  // "namespace/name", or "name" of what has no namespace; empty: not an object
  std::string namespace_;
  std::string name;
  std::string uid;
  Revision revision = 0;
};

Meta ReadMeta(const Json& object);

// Members of objects that may be of any shape: what is missing or of another type reads as empty.
const Json& Child(const Json& object, std::string_view key);  // null when there is none
std::string_view Text(const Json& object, std::string_view key);
int64_t Integer(const Json& object, std::string_view key, int64_t otherwise = 0);
bool Flag(const Json& object, std::string_view key);
// The member when it is a list, and an empty one otherwise.
const Json& Items(const Json& object, std::string_view key);

}  // namespace ringmaster::kube
