// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "api/launch.h"
#include "api/slots.h"
#include "operator/wiring/names.h"
#include "operator/wiring/network.h"
#include "operator/wiring/program.h"
#include "operator/wiring/template.h"
#include "operator/wiring/tree.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::wiring {
namespace {

class Warnings {
 public:
  Warnings(const api::TrainingJob& job, std::vector<std::string>& out)
      : job_(job), user_(ReadTemplate(job)), out_(out) {}

  void Collect() {
    for (const std::string& problem : user_.problems) out_.push_back(problem);
    Metadata();
    Pod();
    Scheduler();
    PinnedMemory();
    Transport();
    Slots();
    AgentFolder();
  }

 private:
  void Slots() {
    if (api::SlotsUnknown(job_.spec.workers))
      out_.push_back(
          "spec.workers.slots: \"gpu\" counts GPUs in resources.limits, not those of a claim, so a pod "
          "has one rank; set the number of GPUs of the claim");
  }

  // The user's mount of a path replaces ours.
  void AgentFolder() {
    const Json* container = UserContainer(user_);
    const Json* mounts = container != nullptr ? Find(*container, {"volumeMounts"}) : nullptr;
    if (!api::RunsCommand(job_.spec) || mounts == nullptr || !mounts->is_array()) return;
    for (const Json& mount : *mounts) {
      const std::string path = Text(mount, {"mountPath"});
      if (path == kAgentFolder || path.starts_with(kAgentFolder + std::string("/")))
        out_.push_back(
            fmt::format("{}.spec.containers[{}].volumeMounts[{}]: hides the agent, which is in {}; mount the "
                        "volume elsewhere",
                        kTemplatePath, user_.worker, path, kAgentFolder));
    }
  }

  void Metadata() {
    const Json* metadata = Find(user_.value, {"metadata"});
    if (metadata == nullptr) return;
    for (const auto& [member, value] : metadata->items()) {
      if (member != "labels" && member != "annotations" && member != "creationTimestamp")
        out_.push_back(fmt::format("{}.metadata.{}: is ignored; the operator sets the pods' names and owners",
                                   kTemplatePath, member));
    }
    const Json ours = PodLabels(job_, 1, 0);
    if (const Json* labels = Find(*metadata, {"labels"}); labels != nullptr && labels->is_object()) {
      for (const auto& [key, value] : labels->items()) {
        if (ours.contains(key))
          out_.push_back(
              fmt::format("{}.metadata.labels[{}]: is replaced by the operator's label; use another one",
                          kTemplatePath, key));
      }
    }
    const bool networks = !Text(*metadata, {"annotations", kNetworksAnnotation}).empty();
    if (networks && !job_.spec.network.networks.empty())
      out_.push_back(
          fmt::format("{}.metadata.annotations[{}]: is used instead of spec.network.networks; set "
                      "only one of the two",
                      kTemplatePath, kNetworksAnnotation));
  }

  void Pod() {
    if (const std::string policy = Text(user_.value, {"spec", "restartPolicy"});
        !policy.empty() && policy != "Never")
      out_.push_back(fmt::format(
          "{}.spec.restartPolicy: {} is replaced by Never; spec.restart defines what happens after failures",
          kTemplatePath, policy));
    for (const char* member : {"hostname", "subdomain"}) {
      if (Find(user_.value, {"spec", member}) != nullptr)
        out_.push_back(
            fmt::format("{}.spec.{}: is replaced by the operator's DNS names", kTemplatePath, member));
    }
    if (const std::string taken = Text(user_.value, {"spec", "nodeName"}); !taken.empty())
      out_.push_back(
          fmt::format("{}.spec.nodeName: binds all workers to {} without the scheduler; use nodeSelector",
                      kTemplatePath, taken));
  }

  // The gang object binds only the scheduler that reads it.
  void Scheduler() {
    const std::string scheduler = Text(user_.value, {"spec", "schedulerName"});
    const std::string& gang = job_.spec.scheduling.gang;
    if (scheduler.empty() || (gang != "volcano" && gang != "coscheduling")) return;
    if (scheduler == SchedulerOf(gang == "volcano" ? Gang::kVolcano : Gang::kCoscheduling, {})) return;
    out_.push_back(
        fmt::format("{}.spec.schedulerName: {} must be the operator's scheduler for the gangs of "
                    "spec.scheduling.gang {}; "
                    "another one would place each worker alone, and the operator refuses it",
                    kTemplatePath, scheduler, gang));
  }

  // An added capability only takes effect for root.
  void PinnedMemory() {
    if (!job_.spec.network.rdma) return;
    const Json* container = UserContainer(user_);
    const Json* user = container != nullptr ? Find(*container, {"securityContext", "runAsUser"}) : nullptr;
    if (user == nullptr) user = Find(user_.value, {"spec", "securityContext", "runAsUser"});
    if (user != nullptr && !user->is_null() && *user != 0)
      out_.push_back(
          fmt::format("{}: IPC_LOCK has no effect for runAsUser {}, and RDMA pins memory; omit runAsUser, "
                      "or configure the nodes with an unlimited memlock for containers",
                      kTemplatePath, user->dump()));
  }

  // Recipes for MPI jobs set UCX to TCP, since MPI uses it for control only. Here gradients would use TCP.
  void Transport() {
    const Json* container = UserContainer(user_);
    const Json* env = container != nullptr ? Find(*container, {"env"}) : nullptr;
    if (!job_.spec.network.rdma || env == nullptr || !env->is_array()) return;
    for (const Json& variable : *env) {
      const std::string value = Text(variable, {"value"});
      const bool tcp_only =
          value == "tcp" || value == "tcp,self" || value == "self,tcp" || value == "tcp,sm,self";
      if (Text(variable, {"name"}) == "UCX_TLS" && tcp_only)
        out_.push_back(
            fmt::format("{}.spec.containers[{}].env[UCX_TLS]: {} keeps gradients on TCP although "
                        "spec.network.rdma is set; remove it",
                        kTemplatePath, user_.worker, value));
    }
  }

  const api::TrainingJob& job_;
  const Template user_;
  std::vector<std::string>& out_;
};

}  // namespace

std::vector<std::string> TemplateWarnings(const api::TrainingJob& job) {
  std::vector<std::string> warnings;
  Warnings(job, warnings).Collect();
  for (const api::Role& role : job.spec.roles) {
    if (role.template_.is_null()) continue;
    std::vector<std::string> own;
    const std::string place = api::HasPods(role) ? role.name : "";
    Warnings(JobOfRole(job, place, 0), own).Collect();
    for (std::string& warning : own) {
      if (!warning.starts_with(kTemplatePath)) continue;
      warnings.push_back(
          fmt::format("spec.roles[{}].template{}", role.name, warning.substr(std::strlen(kTemplatePath))));
    }
  }
  return warnings;
}

}  // namespace ringmaster::wiring
