// SPDX-License-Identifier: Apache-2.0

#include "operator/wiring/security.h"

#include <string>

#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

bool Is(const Json* value, const Json& wanted) { return value != nullptr && *value == wanted; }

bool RunsAsRoot(const Json& holder) { return Is(Find(holder, {"securityContext", "runAsUser"}), 0); }

bool Lists(const Json* list, const char* value) {
  if (list == nullptr || !list->is_array()) return false;
  for (const Json& item : *list) {
    if (item == value) return true;
  }
  return false;
}

bool NeedsEscalation(const Json& container) {
  const Json* added = Find(container, {"securityContext", "capabilities", "add"});
  return Is(Find(container, {"securityContext", "privileged"}), true) || Lists(added, "SYS_ADMIN") ||
         Lists(added, "CAP_SYS_ADMIN");
}

bool AnyContainerIsRoot(const Json& spec) {
  for (const char* list : {"containers", "initContainers"}) {
    const Json* containers = Find(spec, {list});
    if (containers == nullptr) continue;
    for (const Json& container : *containers) {
      if (RunsAsRoot(container)) return true;
    }
  }
  return false;
}

}  // namespace

void SecureByDefault(const api::TrainingJob& job, Json& spec, Json& container) {
  Json& of_pod = ObjectIn(spec, "securityContext");
  Json& of_container = ObjectIn(container, "securityContext");
  of_pod["seccompProfile"] = {{"type", "RuntimeDefault"}};
  of_container["allowPrivilegeEscalation"] = false;
  const bool rdma = job.spec.network.rdma.has_value();
  if (rdma) AllowPinnedMemory(container);
  if (job.spec.framework != "native") return;
  of_container["capabilities"]["drop"] = Json::array({"ALL"});
  if (rdma) {
    of_pod["runAsUser"] = 0;
    return;
  }
  of_pod["runAsNonRoot"] = true;
  of_pod["runAsUser"] = kWorkerUser;
  of_pod["runAsGroup"] = kWorkerUser;
  of_pod["fsGroup"] = kWorkerUser;
  of_pod["fsGroupChangePolicy"] = "OnRootMismatch";
}

void AllowPinnedMemory(Json& container) {
  AddOnce(ListIn(ObjectIn(ObjectIn(container, "securityContext"), "capabilities"), "add"), "IPC_LOCK");
}

void DropContradictedDefaults(const Template& user, Json& spec, Json& container) {
  const bool asked_non_root = Find(user.value, {"spec", "securityContext", "runAsNonRoot"}) != nullptr;
  if (!asked_non_root && (RunsAsRoot(spec) || AnyContainerIsRoot(spec)) && spec.contains("securityContext"))
    spec["securityContext"].erase("runAsNonRoot");
  const Json* own = UserContainer(user);
  const bool asked_escalation =
      own != nullptr && Find(*own, {"securityContext", "allowPrivilegeEscalation"}) != nullptr;
  if (!asked_escalation && NeedsEscalation(container))
    container["securityContext"].erase("allowPrivilegeEscalation");
}

}  // namespace ringmaster::wiring
