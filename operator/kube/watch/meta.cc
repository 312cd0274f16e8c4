// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/watch/meta.h"

#include <fmt/format.h>

#include <charconv>

namespace ringmaster::kube {

Revision ParseRevision(std::string_view text) {
  Revision revision = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), revision);
  return error == std::errc() && end == text.data() + text.size() ? revision : 0;
}

Meta ReadMeta(const Json& object) {
  const Json& metadata = json::Child(object, "metadata");
  Meta meta;
  meta.namespace_ = json::Text(metadata, "namespace");
  meta.name = json::Text(metadata, "name");
  meta.uid = json::Text(metadata, "uid");
  meta.revision = ParseRevision(json::Text(metadata, "resourceVersion"));
  if (!meta.name.empty()) meta.key = meta.namespace_.empty() ? meta.name : meta.namespace_ + "/" + meta.name;
  return meta;
}

const Json& ControllerOf(const Json& object) {
  static const Json kNone;
  for (const Json& owner : json::Items(json::Child(object, "metadata"), "ownerReferences"))
    if (json::Flag(owner, "controller")) return owner;
  return kNone;
}

std::string ControllerUid(const Json& object) { return std::string(json::Text(ControllerOf(object), "uid")); }

std::string DescribeController(const Json& object) {
  const Json& owner = ControllerOf(object);
  if (owner.is_null()) return "has no owner";
  return fmt::format("belongs to {} {} (uid {})", json::Text(owner, "kind"), json::Text(owner, "name"),
                     json::Text(owner, "uid"));
}

}  // namespace ringmaster::kube
