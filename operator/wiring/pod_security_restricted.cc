// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "operator/wiring/pod_security_checks.h"
#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

constexpr std::array<const char*, 9> kVolumes = {"configMap", "csi",   "downwardAPI",           "emptyDir",
                                                 "ephemeral", "image", "persistentVolumeClaim", "projected",
                                                 "secret"};

bool Has(const Json* list, std::string_view value) {
  return list != nullptr && list->is_array() &&
         std::any_of(list->begin(), list->end(), [&](const Json& item) { return item == value; });
}

class Restricted {
 public:
  Restricted(const Json& pod, Refusals& refusals) : pod_(pod), refusals_(refusals) {}

  void Check() {
    Volumes();
    User();
    Seccomp();
    EachContainer(pod_, [&](const Json& container, const std::string& path) {
      Capabilities(path, container);
      ProcMount(path, container);
    });
  }

 private:
  void Add(std::string field, std::string what, std::string remedy) {
    refusals_.push_back({std::move(field), std::move(what), std::move(remedy)});
  }

  void Volumes() {
    const Json* volumes = Find(pod_, {"spec", "volumes"});
    if (volumes == nullptr || !volumes->is_array()) return;
    for (const Json& volume : *volumes) {
      if (volume.contains("hostPath")) continue;  // baseline refuses it
      if (std::none_of(kVolumes.begin(), kVolumes.end(),
                       [&](const char* kind) { return volume.contains(kind); }))
        Add(fmt::format("spec.volumes[{}]", Text(volume, {"name"})), "has a restricted volume type",
            fmt::format("use one of {}", fmt::join(kVolumes, ", ")));
    }
  }

  void User() {
    if (InUserNamespace(pod_)) return;
    const Json* of_pod = Find(pod_, {"spec", "securityContext", "runAsNonRoot"});
    Root("spec", Find(pod_, {"spec", "securityContext"}));
    const bool pod_wide = of_pod != nullptr && *of_pod == true;
    if (of_pod != nullptr && *of_pod == false)
      Add("spec.securityContext.runAsNonRoot", "is false", "set it to true");
    EachContainer(pod_, [&](const Json& container, const std::string& path) {
      Root(path, Find(container, {"securityContext"}));
      const Json* own = Find(container, {"securityContext", "runAsNonRoot"});
      if (own == nullptr ? !pod_wide : *own != true)
        Add(path + ".securityContext.runAsNonRoot", "is not true",
            "set it to true, and runAsUser to a non-zero user unless the image has one");
    });
  }

  void Root(const std::string& path, const Json* context) {
    const Json* user = context != nullptr ? Find(*context, {"runAsUser"}) : nullptr;
    if (user != nullptr && *user == 0)
      Add(path + ".securityContext.runAsUser", "is 0 (root)", "use another user");
  }

  void Seccomp() {
    const Json* of_pod = Find(pod_, {"spec", "securityContext", "seccompProfile"});
    if (of_pod != nullptr) return;  // baseline checks it
    EachContainer(pod_, [&](const Json& container, const std::string& path) {
      if (Find(container, {"securityContext", "seccompProfile"}) == nullptr)
        Add(path + ".securityContext.seccompProfile", "is not set", "set its type to RuntimeDefault");
    });
  }

  void Capabilities(const std::string& path, const Json& container) {
    const Json* escalation = Find(container, {"securityContext", "allowPrivilegeEscalation"});
    if (escalation == nullptr || *escalation != false)
      Add(path + ".securityContext.allowPrivilegeEscalation", "is not false", "set it to false");
    if (!Has(Find(container, {"securityContext", "capabilities", "drop"}), "ALL"))
      Add(path + ".securityContext.capabilities.drop", "does not have ALL", "set it to [ALL]");
    const Json* added = Find(container, {"securityContext", "capabilities", "add"});
    if (added == nullptr || !added->is_array()) return;
    for (const Json& item : *added) {
      if (item != "NET_BIND_SERVICE" && item != "IPC_LOCK")  // baseline refuses IPC_LOCK with its remedy
        Add(path + ".securityContext.capabilities.add", fmt::format("has {}", item.dump()),
            "remove it from the template");
    }
  }

  // Baseline accepts it in a user namespace.
  void ProcMount(const std::string& path, const Json& container) {
    const std::string mount = Text(container, {"securityContext", "procMount"});
    if (!mount.empty() && mount != "Default" && InUserNamespace(pod_))
      Add(path + ".securityContext.procMount", fmt::format("is {}", mount), "remove it from the template");
  }

  const Json& pod_;
  Refusals& refusals_;
};

}  // namespace

void CheckRestricted(const Json& pod, Refusals& refusals) { Restricted(pod, refusals).Check(); }

}  // namespace ringmaster::wiring
