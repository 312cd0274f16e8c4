// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/answers.h"
#include "base/json.h"

#include <fmt/format.h>

namespace ringmaster::kube {

std::string OwnerOf(const Json& object) {
  for (const Json& owner : json::Items(json::Child(object, "metadata"), "ownerReferences"))
    if (json::Flag(owner, "controller")) return std::string(json::Text(owner, "uid"));
  return {};
}

std::string OwnerText(const Json& object) {
  for (const Json& owner : json::Items(json::Child(object, "metadata"), "ownerReferences"))
    if (json::Flag(owner, "controller"))
      return fmt::format("belongs to {} {} (uid {})", json::Text(owner, "kind"), json::Text(owner, "name"),
                         json::Text(owner, "uid"));
  return "belongs to nobody";
}

}  // namespace ringmaster::kube
