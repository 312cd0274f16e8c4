// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/merge.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ringmaster::wiring {
namespace {

enum class Sources : uint8_t { kMerge, kReplaceOther, kReplace };

struct KeyedList {
  std::string_view name;
  std::vector<const char*> keys;
  Sources sources = Sources::kMerge;
};

// Each of these names means the same list everywhere in a PodTemplateSpec.
const KeyedList* FindKeyedList(std::string_view name) {
  static const std::vector<KeyedList> kLists = {
      {"containers", {"name"}},
      {"initContainers", {"name"}},
      {"env", {"name"}, Sources::kReplace},
      {"volumes", {"name"}, Sources::kReplaceOther},
      {"volumeMounts", {"mountPath"}},
      {"volumeDevices", {"devicePath"}},
      {"ports", {"containerPort", "protocol"}},
      {"imagePullSecrets", {"name"}},
      {"hostAliases", {"ip"}},
      {"topologySpreadConstraints", {"topologyKey", "whenUnsatisfiable"}},
      {"schedulingGates", {"name"}},
      {"resourceClaims", {"name"}, Sources::kReplaceOther},
      {"claims", {"name"}},
  };
  const auto at =
      std::find_if(kLists.begin(), kLists.end(), [&](const KeyedList& list) { return list.name == name; });
  return at == kLists.end() ? nullptr : &*at;
}

Json KeyOf(const Json& item, const char* key) {
  if (item.is_object() && item.contains(key)) return item[key];
  return std::string_view(key) == "protocol" ? Json("TCP") : Json();
}

bool SameKey(const Json& a, const Json& b, const KeyedList& list) {
  if (!a.is_object() || !b.is_object()) return false;
  return std::all_of(list.keys.begin(), list.keys.end(), [&](const char* key) {
    const Json of_a = KeyOf(a, key);
    return !of_a.is_null() && of_a == KeyOf(b, key);
  });
}

// Whether `over` names no source or the same source as `base`.
bool SameSource(const Json& base, const Json& over) {
  for (const auto& [member, value] : over.items()) {
    if (member != "name" && !value.is_null() && !base.contains(member)) return false;
  }
  return true;
}

Json WithoutNulls(const Json& value) {
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& item : value) list.push_back(WithoutNulls(item));
    return list;
  }
  if (!value.is_object()) return value;
  Json object = Json::object();
  for (const auto& [member, inner] : value.items()) {
    if (!inner.is_null()) object[member] = WithoutNulls(inner);
  }
  return object;
}

Json MergeItem(Json base, const Json& over, const KeyedList& list) {
  const bool replace = list.sources == Sources::kReplace ||
                       (list.sources == Sources::kReplaceOther && !SameSource(base, over));
  return replace ? WithoutNulls(over) : StrategicMerge(std::move(base), over);
}

Json MergeList(Json base, const Json& over, const KeyedList& list) {
  for (const Json& item : over) {
    const auto at =
        std::find_if(base.begin(), base.end(), [&](const Json& old) { return SameKey(old, item, list); });
    if (at == base.end())
      base.push_back(WithoutNulls(item));
    else
      *at = MergeItem(std::move(*at), item, list);
  }
  return base;
}

}  // namespace

Json StrategicMerge(Json base, const Json& over) {
  if (!base.is_object() || !over.is_object()) return WithoutNulls(over);
  for (const auto& [member, value] : over.items()) {
    if (value.is_null()) {
      base.erase(member);
      continue;
    }
    const KeyedList* list = value.is_array() ? FindKeyedList(member) : nullptr;
    Json old = base.contains(member) ? std::move(base[member]) : Json();
    if (list != nullptr)
      base[member] = MergeList(old.is_array() ? std::move(old) : Json::array(), value, *list);
    else
      base[member] = StrategicMerge(std::move(old), value);
  }
  return base;
}

}  // namespace ringmaster::wiring
