// SPDX-License-Identifier: Apache-2.0

// What the cluster would refuse, told before anything is tried.
#include <fmt/format.h>

#include <utility>

#include "operator/kube/backend/kube_backend.h"

namespace ringmaster::kube {

std::optional<core::Refusal> KubeBackend::PreflightOf(const JobRecord& job) const {
  const auto space = namespaces_.Get(job.key.namespace_);
  const std::string level = space ? space->pod_security : std::string();
  const bool ending = space && space->ending;
  std::string basis;
  {
    std::lock_guard lock(mutex_);
    basis = fmt::format("{}/{}/{}", job.spec->job.spec_generation, level, ending);
    for (const auto& [api, served] : gang_apis_) basis += served ? '+' : '-';
    const JobState& state = StateOf(job);
    if (state.preflight_for == basis) return state.preflight;
  }
  core::RefusalKind kind = core::RefusalKind::kForbidden;
  std::optional<std::string> message = RefusalOf(job, kind);
  std::lock_guard lock(mutex_);
  JobState& state = StateOf(job);
  state.preflight_for = basis;
  const Time now = Now();
  if (!message) {
    state.preflight.reset();
  } else {
    const Time since = state.preflight && state.preflight->kind == kind ? state.preflight->since : now;
    state.preflight = core::Refusal{kind, *std::move(message), since, since};
  }
  return state.preflight;
}

std::optional<std::string> KubeBackend::RefusalOf(const JobRecord& job, core::RefusalKind& kind) const {
  const auto space = namespaces_.Get(job.key.namespace_);
  if (space && space->ending) {
    kind = core::RefusalKind::kNamespaceEnding;
    return "namespace " + job.key.namespace_ + " is being deleted";
  }
  {
    std::lock_guard lock(mutex_);
    if (!ChooseGang(job.spec->job.gang, job.spec->job.max, gang_apis_)) {
      kind = core::RefusalKind::kNoGangProvider;
      return fmt::format(
          "spec.scheduling.gang is {} and the API server serves no such PodGroup: install it, or set `auto` "
          "or `gate`",
          job.ToApi().spec.scheduling.gang);
    }
  }
  if (!space || space->pod_security.empty() || space->pod_security == "privileged") return std::nullopt;
  wiring::Context context = ContextOf(job);
  context.size = job.spec->job.Target();
  const Json pod = wiring::PodOf(job.ToApi(), job.uid, 0, context);
  const std::vector<std::string> refusals = wiring::PodSecurityRefusals(pod, space->pod_security);
  if (refusals.empty()) return std::nullopt;
  kind = core::RefusalKind::kPodSecurity;
  std::string message =
      fmt::format("namespace {} enforces Pod Security level {}: ", job.key.namespace_, space->pod_security);
  for (size_t i = 0; i < refusals.size(); ++i) message += (i == 0 ? "" : "; ") + refusals[i];
  return message;
}

}  // namespace ringmaster::kube
