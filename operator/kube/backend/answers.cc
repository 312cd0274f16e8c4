#include "operator/kube/backend/answers.h"

#include <fmt/format.h>

namespace ringmaster::kube {

std::string OwnerOf(const Json& object) {
  for (const Json& owner : Items(Child(object, "metadata"), "ownerReferences"))
    if (Flag(owner, "controller")) return std::string(Text(owner, "uid"));
  return {};
}

std::string OwnerText(const Json& object) {
  for (const Json& owner : Items(Child(object, "metadata"), "ownerReferences"))
    if (Flag(owner, "controller"))
      return fmt::format("belongs to {} {} (uid {})", Text(owner, "kind"), Text(owner, "name"),
                         Text(owner, "uid"));
  return "belongs to nobody";
}

}  // namespace ringmaster::kube
