// SPDX-License-Identifier: Apache-2.0

#include "api/launch.h"

#include <algorithm>

#include "api/pod_template.h"
#include "api/slots.h"

namespace ringmaster::api {
namespace {

// From the SIGKILL of the last rank to the end of its agent.
constexpr int32_t kAgentSeconds = 5;
// From the coordinator's order to exit to the end of an agent, when no code of the user follows.
constexpr int32_t kFinishSeconds = 3;

bool IsNative(const Spec& spec) { return spec.framework == "native"; }

}  // namespace

bool RunsPrograms(const Spec& spec) { return !IsNative(spec) && spec.launch.kind == "ranks"; }

bool UsesLibrary(const Spec& spec) { return !IsNative(spec) && spec.launch.kind == "library"; }

bool RunsTrainers(const Spec& spec) { return IsNative(spec) || UsesLibrary(spec); }

bool RunsCommand(const Spec& spec) { return RunsPrograms(spec) || UsesLibrary(spec); }

bool RestartsInPlace(const Spec& spec) { return RunsTrainers(spec) || RunsPrograms(spec); }

bool HasLauncher(std::string_view framework) { return framework == "mpi" || framework == "horovod"; }

bool LaunchesRanks(const Spec& spec) { return HasLauncher(spec.framework) && RunsPrograms(spec); }

std::string LaunchedBy(const Spec& spec) { return spec.launch.mpi.value_or("gloo"); }

bool HasLiveWorkers(const Spec& spec) {
  return spec.framework == "horovod" && LaunchesRanks(spec) && (spec.workers.min || spec.workers.max);
}

int32_t ProgramsPerWorker(const Spec& spec) { return LaunchesRanks(spec) ? 1 : SlotsOf(spec.workers); }

bool WorkersNeedCommand(const Spec& spec) {
  const Role* launcher = HasLauncher(spec.framework) ? FindRole(spec, kLauncher) : nullptr;
  return launcher == nullptr || launcher->template_.is_null();
}

int32_t GraceSeconds(const Spec& spec) {
  const int32_t grace = spec.checkpoint.gracePeriodSeconds;
  const int32_t stop = spec.restart.stopSeconds + kAgentSeconds;
  // With the library, the checkpoint comes first, and then the program ends.
  if (UsesLibrary(spec)) return grace + stop;
  return RunsPrograms(spec) ? std::max(grace, stop) : grace;
}

int32_t FinishSeconds(const Spec& spec) {
  return UsesLibrary(spec) ? spec.restart.stopSeconds + kAgentSeconds : kFinishSeconds;
}

std::string_view RolesOf(std::string_view framework) {
  if (framework == "tensorflow") return "chief|ps|evaluator";
  if (framework == "pytorch") return kMaster;
  if (HasLauncher(framework)) return kLauncher;
  return "";
}

const Role* FindRole(const Spec& spec, std::string_view name) {
  const auto it =
      std::find_if(spec.roles.begin(), spec.roles.end(), [&](const Role& role) { return role.name == name; });
  return it == spec.roles.end() ? nullptr : &*it;
}

bool HasPods(const Role& role) { return role.name != kMaster; }

std::string RestartOf(const Role& role) {
  return role.restart.value_or(role.name == kParameterServer || role.name == kEvaluator ? "Pod" : "Gang");
}

std::string WorkersRestart(const Spec& spec) {
  return FindRole(spec, kParameterServer) != nullptr || HasLiveWorkers(spec) ? "Pod" : "Gang";
}

bool CompletesOf(const Role& role) {
  return role.completes.value_or(role.name != kParameterServer && role.name != kEvaluator);
}

std::string SuccessOf(const Spec& spec) {
  const char* usual = FindRole(spec, kChief) != nullptr ? "Chief"
                      : LaunchesRanks(spec)             ? "Launcher"
                                                        : "AllWorkers";
  return spec.lifecycle.success.value_or(usual);
}

const Json& TemplateOf(const Spec& spec, std::string_view role, int32_t index) {
  const Role* own = FindRole(spec, role.empty() && index == 0 ? kMaster : role);
  return own == nullptr || own->template_.is_null() ? spec.workers.template_ : own->template_;
}

std::string PriorityClassOf(const Spec& spec, const Json& pod_template) {
  const Json* own = MemberOf(MemberOf(&pod_template, "spec"), "priorityClassName");
  if (own == nullptr) return spec.scheduling.priorityClassName;
  return own->is_string() ? own->get<std::string>() : std::string();
}

}  // namespace ringmaster::api
