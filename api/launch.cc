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

}  // namespace ringmaster::api
