// SPDX-License-Identifier: Apache-2.0

#include "cli/cluster/export_pod.h"

#include <set>

#include "base/json.h"
#include "operator/wiring/names.h"

namespace ringmaster::cli {

using json::Child;
using json::Items;
using json::Text;

const Json& WorkerContainerOf(const Json& pod) {
  static const Json kNone;
  const Json& containers = Items(Child(pod, "spec"), "containers");
  const std::string_view recorded =
      Text(Child(Child(pod, "metadata"), "annotations"), wiring::kWorkerAnnotation);
  for (const Json& container : containers)
    if (!recorded.empty() && Text(container, "name") == recorded) return container;
  for (const Json& container : containers)
    if (Text(container, "name") == "worker") return container;
  return containers.empty() ? kNone : containers[0];
}

namespace {

// Returns the processor time, memory and disk of a container. The export computes nothing on devices.
Json PlainResources(const Json& resources) {
  Json plain = Json::object();
  for (const char* const kind : {"requests", "limits"})
    for (const char* const name : {"cpu", "memory", "ephemeral-storage"})
      if (const Json& value = Child(Child(resources, kind), name); !value.is_null())
        plain[kind][name] = value;
  return plain;
}

}  // namespace

Json ExportPod(const Json& worker, const std::string& job, const std::string& job_uid,
               const std::string& from, const std::string& to) {
  const Json& spec = Child(worker, "spec");
  const Json& trainer = WorkerContainerOf(worker);

  // Keep the user's volumes and the checkpoints. Tokens and memory volumes serve workers only.
  Json volumes = Json::array();
  std::set<std::string> kept;
  for (const Json& volume : Items(spec, "volumes")) {
    const Json& memory = Child(volume, "emptyDir");
    if (!Child(volume, "projected").is_null() || Text(memory, "medium") == "Memory") continue;
    volumes.push_back(volume);
    kept.emplace(Text(volume, "name"));
  }
  Json mounts = Json::array();
  for (const Json& mount : Items(trainer, "volumeMounts"))
    if (kept.contains(std::string(Text(mount, "name")))) mounts.push_back(mount);

  Json container = {{"name", "export"},
                    {"image", Text(trainer, "image")},
                    {"command", {"ringmaster", "export", from, "--to", to}},
                    {"terminationMessagePolicy", "FallbackToLogsOnError"},
                    {"volumeMounts", std::move(mounts)}};
  for (const char* field : {"imagePullPolicy", "securityContext"})
    if (const Json& value = Child(trainer, field); !value.is_null()) container[field] = value;

  if (Json resources = PlainResources(Child(trainer, "resources")); !resources.empty())
    container["resources"] = std::move(resources);

  Json pod_spec = {{"restartPolicy", "Never"},
                   {"automountServiceAccountToken", false},
                   {"enableServiceLinks", false},
                   {"containers", Json::array({std::move(container)})},
                   {"volumes", std::move(volumes)}};
  for (const char* field : {"imagePullSecrets", "securityContext", "nodeSelector", "tolerations", "affinity",
                            "runtimeClassName", "priorityClassName", "serviceAccountName"})
    if (const Json& value = Child(spec, field); !value.is_null()) pod_spec[field] = value;
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"name", job + "-export"},
            {"labels", {{"app.kubernetes.io/name", "ringmaster-export"}}},
            {"ownerReferences",
             {{{"apiVersion", "ringmaster.dev/v1alpha1"},
               {"kind", "TrainingJob"},
               {"name", job},
               {"uid", job_uid}}}}}},
          {"spec", std::move(pod_spec)}};
}

}  // namespace ringmaster::cli
