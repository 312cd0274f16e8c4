// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "operator/wiring/pod_security_checks.h"
#include "operator/wiring/tree.h"

namespace ringmaster::wiring {
namespace {

constexpr std::string_view kCapabilities[] = {
    "AUDIT_WRITE",      "CHOWN",   "DAC_OVERRIDE", "FOWNER",  "FSETID", "KILL",      "MKNOD",
    "NET_BIND_SERVICE", "SETFCAP", "SETGID",       "SETPCAP", "SETUID", "SYS_CHROOT"};

constexpr std::string_view kSysctls[] = {"kernel.shm_rmid_forced",
                                         "net.ipv4.ip_local_port_range",
                                         "net.ipv4.ip_local_reserved_ports",
                                         "net.ipv4.ip_unprivileged_port_start",
                                         "net.ipv4.ping_group_range",
                                         "net.ipv4.tcp_fin_timeout",
                                         "net.ipv4.tcp_keepalive_intvl",
                                         "net.ipv4.tcp_keepalive_probes",
                                         "net.ipv4.tcp_keepalive_time",
                                         "net.ipv4.tcp_notsent_lowat",
                                         "net.ipv4.tcp_rmem",
                                         "net.ipv4.tcp_slow_start_after_idle",
                                         "net.ipv4.tcp_syncookies",
                                         "net.ipv4.tcp_wmem"};

constexpr std::string_view kSelinuxTypes[] = {"", "container_t", "container_init_t", "container_kvm_t",
                                              "container_engine_t"};

constexpr const char* kAppArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/";

template <size_t N>
bool OneOf(const std::string_view (&values)[N], const std::string& value) {
  return std::find(std::begin(values), std::end(values), value) != std::end(values);
}

bool IsTrue(const Json* value) { return value != nullptr && *value == true; }

class Baseline {
 public:
  Baseline(const Json& pod, Refusals& refusals) : pod_(pod), refusals_(refusals) {}

  void Check() {
    HostNamespaces();
    HostPaths();
    Sysctls();
    AppArmorAnnotations();
    Context("spec", Find(pod_, {"spec", "securityContext"}));
    EachContainer(pod_, [&](const Json& container, const std::string& path) {
      Context(path, Find(container, {"securityContext"}));
      Privileges(path, container);
      HostPorts(path, container);
      HostHandlers(path, container);
    });
  }

 private:
  void Add(std::string field, std::string what, std::string remedy) {
    refusals_.push_back({std::move(field), std::move(what), std::move(remedy)});
  }

  void HostNamespaces() {
    if (IsTrue(Find(pod_, {"spec", "hostNetwork"})))
      Add("spec.hostNetwork", "is true", "set spec.network.hostNetwork of the job to false");
    for (const char* which : {"hostPID", "hostIPC"}) {
      if (IsTrue(Find(pod_, {"spec", which})))
        Add(fmt::format("spec.{}", which), "is true", "remove it from the template");
    }
  }

  void HostPaths() {
    const Json* volumes = Find(pod_, {"spec", "volumes"});
    if (volumes == nullptr || !volumes->is_array()) return;
    for (const Json& volume : *volumes) {
      if (volume.contains("hostPath"))
        Add(fmt::format("spec.volumes[{}]", Text(volume, {"name"})), "is a hostPath",
            "use a persistentVolumeClaim");
    }
  }

  void Sysctls() {
    const Json* sysctls = Find(pod_, {"spec", "securityContext", "sysctls"});
    if (sysctls == nullptr || !sysctls->is_array()) return;
    for (const Json& sysctl : *sysctls) {
      const std::string name = Text(sysctl, {"name"});
      if (!OneOf(kSysctls, name))
        Add(fmt::format("spec.securityContext.sysctls[{}]", name), "is not a safe sysctl",
            "remove it from the template");
    }
  }

  void AppArmorAnnotations() {
    const Json* annotations = Find(pod_, {"metadata", "annotations"});
    if (annotations == nullptr || !annotations->is_object()) return;
    for (const auto& [key, value] : annotations->items()) {
      if (!key.starts_with(kAppArmorAnnotation) || !value.is_string()) continue;
      const auto& profile = value.get_ref<const std::string&>();
      if (profile.empty() || profile == "runtime/default" || profile.starts_with("localhost/")) continue;
      Add(fmt::format("metadata.annotations[{}]", key), fmt::format("is {}", profile),
          "use runtime/default or localhost/PROFILE");
    }
  }

  // Checks the security context of the pod or of a container.
  void Context(const std::string& path, const Json* context) {
    if (context == nullptr || !context->is_object()) return;
    for (const char* kind : {"seccompProfile", "appArmorProfile"}) {
      const Json* profile = Find(*context, {kind});
      if (profile == nullptr || !profile->is_object()) continue;
      const std::string type = Text(*profile, {"type"});
      if (type != "RuntimeDefault" && type != "Localhost")
        Add(fmt::format("{}.securityContext.{}.type", path, kind), fmt::format("is {}", type),
            "use RuntimeDefault or Localhost");
    }
    const Json* selinux = Find(*context, {"seLinuxOptions"});
    if (selinux != nullptr) Selinux(path + ".securityContext.seLinuxOptions", *selinux);
    if (IsTrue(Find(*context, {"windowsOptions", "hostProcess"})))
      Add(path + ".securityContext.windowsOptions.hostProcess", "is true", "remove it from the template");
  }

  void Selinux(const std::string& path, const Json& options) {
    const std::string type = Text(options, {"type"});
    if (!OneOf(kSelinuxTypes, type))
      Add(path + ".type", fmt::format("is {}", type), "use container_t, or omit it");
    for (const char* member : {"user", "role"}) {
      if (!Text(options, {member}).empty())
        Add(fmt::format("{}.{}", path, member), "is set", "remove it from the template");
    }
  }

  void Privileges(const std::string& path, const Json& container) {
    if (IsTrue(Find(container, {"securityContext", "privileged"})))
      Add(path + ".securityContext.privileged", "is true", "remove it from the template");
    if (const std::string mount = Text(container, {"securityContext", "procMount"});
        !mount.empty() && mount != "Default" && !InUserNamespace(pod_))
      Add(path + ".securityContext.procMount", fmt::format("is {}", mount), "remove it from the template");
    const Json* added = Find(container, {"securityContext", "capabilities", "add"});
    if (added == nullptr || !added->is_array()) return;
    for (const Json& item : *added) {
      const std::string capability = item.is_string() ? item.get<std::string>() : item.dump();
      if (OneOf(kCapabilities, capability)) continue;
      Add(path + ".securityContext.capabilities.add", fmt::format("has {}", capability),
          capability == "IPC_LOCK" ? "remove spec.network.rdma from the job, which needs it to pin memory"
                                   : "remove it from the template");
    }
  }

  void HostPorts(const std::string& path, const Json& container) {
    const Json* ports = Find(container, {"ports"});
    if (ports == nullptr || !ports->is_array()) return;
    // On the host network every port is a port of the node.
    const bool all = IsTrue(Find(pod_, {"spec", "hostNetwork"}));
    for (const Json& port : *ports) {
      const Json* number = Find(port, {"hostPort"});
      if (number == nullptr && all) number = Find(port, {"containerPort"});
      if (number != nullptr && number->is_number() && *number != 0)
        Add(fmt::format("{}.ports[{}]", path, number->dump()), "is a port of the node",
            all ? "set spec.network.hostNetwork of the job to false" : "remove hostPort from the template");
    }
  }

  void HostHandlers(const std::string& path, const Json& container) {
    const std::initializer_list<std::initializer_list<const char*>> handlers = {{"livenessProbe"},
                                                                                {"readinessProbe"},
                                                                                {"startupProbe"},
                                                                                {"lifecycle", "postStart"},
                                                                                {"lifecycle", "preStop"}};
    for (const auto& handler : handlers) {
      const Json* found = Find(container, handler);
      if (found == nullptr) continue;
      for (const char* action : {"httpGet", "tcpSocket"}) {
        if (Text(*found, {action, "host"}).empty()) continue;
        Add(fmt::format("{}.{}.{}.host", path, fmt::join(handler, "."), action), "is set",
            "omit it, so that the pod itself is probed");
      }
    }
  }

  const Json& pod_;
  Refusals& refusals_;
};

}  // namespace

void CheckBaseline(const Json& pod, Refusals& refusals) { Baseline(pod, refusals).Check(); }

}  // namespace ringmaster::wiring
