// SPDX-License-Identifier: Apache-2.0

#include "api/launch.h"

#include <algorithm>

namespace ringmaster::api {
namespace {

// From the SIGKILL of the last rank to the end of its agent.
constexpr int32_t kAgentSeconds = 5;

bool IsNative(const Spec& spec) { return spec.framework == "native"; }

}  // namespace

bool RunsPrograms(const Spec& spec) { return !IsNative(spec) && spec.launch.kind == "ranks"; }

bool RestartsInPlace(const Spec& spec) { return IsNative(spec) || RunsPrograms(spec); }

int32_t GraceSeconds(const Spec& spec) {
  const int32_t grace = spec.checkpoint.gracePeriodSeconds;
  return RunsPrograms(spec) ? std::max(grace, spec.restart.stopSeconds + kAgentSeconds) : grace;
}

std::string_view RolesOf(std::string_view framework) {
  if (framework == "tensorflow") return "chief|ps|evaluator";
  if (framework == "pytorch") return kMaster;
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
  return FindRole(spec, kParameterServer) != nullptr ? "Pod" : "Gang";
}

bool CompletesOf(const Role& role) {
  return role.completes.value_or(role.name != kParameterServer && role.name != kEvaluator);
}

std::string SuccessOf(const Spec& spec) {
  return spec.lifecycle.success.value_or(FindRole(spec, kChief) != nullptr ? "Chief" : "AllWorkers");
}

const Json& TemplateOf(const Spec& spec, std::string_view role, int32_t index) {
  const Role* own = FindRole(spec, role.empty() && index == 0 ? kMaster : role);
  return own == nullptr || own->template_.is_null() ? spec.workers.template_ : own->template_;
}

}  // namespace ringmaster::api
