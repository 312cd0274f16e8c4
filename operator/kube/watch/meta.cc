#include "operator/kube/watch/meta.h"

#include <charconv>

namespace ringmaster::kube {

Revision ParseRevision(std::string_view text) {
  Revision revision = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), revision);
  return error == std::errc() && end == text.data() + text.size() ? revision : 0;
}

const Json& Child(const Json& object, std::string_view key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto it = object.find(key);
  return it == object.end() ? kNone : *it;
}

std::string_view Text(const Json& object, std::string_view key) {
  const Json& child = Child(object, key);
  return child.is_string() ? std::string_view(child.get_ref<const std::string&>()) : std::string_view();
}

int64_t Integer(const Json& object, std::string_view key, int64_t otherwise) {
  const Json& child = Child(object, key);
  return child.is_number_integer() ? child.get<int64_t>() : otherwise;
}

bool Flag(const Json& object, std::string_view key) {
  const Json& child = Child(object, key);
  return child.is_boolean() && child.get<bool>();
}

const Json& Items(const Json& object, std::string_view key) {
  static const Json kEmpty = Json::array();
  const Json& child = Child(object, key);
  return child.is_array() ? child : kEmpty;
}

Meta ReadMeta(const Json& object) {
  const Json& metadata = Child(object, "metadata");
  Meta meta;
  meta.namespace_ = Text(metadata, "namespace");
  meta.name = Text(metadata, "name");
  meta.uid = Text(metadata, "uid");
  meta.revision = ParseRevision(Text(metadata, "resourceVersion"));
  if (!meta.name.empty()) meta.key = meta.namespace_.empty() ? meta.name : meta.namespace_ + "/" + meta.name;
  return meta;
}

}  // namespace ringmaster::kube
