// SPDX-License-Identifier: Apache-2.0

#include "operator/core/refusals.h"

#include <algorithm>

namespace ringmaster::core {
namespace {

constexpr Duration kFirstPause = seconds(1);
constexpr Duration kLastPause = seconds(60);

bool Says(const Error& error, const char* words) { return error.message.find(words) != std::string::npos; }

}  // namespace

// The API server has one status for all kinds of refusal; its words tell them apart.
std::optional<RefusalKind> ClassifyRefusal(const Error& error) {
  if (error.code == Code::kInvalid) return RefusalKind::kInvalid;
  if (error.code == Code::kExhausted) return RefusalKind::kNoHostPorts;
  if (error.code != Code::kForbidden) return std::nullopt;
  if (Says(error, "exceeded quota") || Says(error, "failed quota") || Says(error, "insufficient quota"))
    return RefusalKind::kQuota;
  if (Says(error, "violates PodSecurity")) return RefusalKind::kPodSecurity;
  if (Says(error, "being terminated")) return RefusalKind::kNamespaceEnding;
  if (Says(error, "admission webhook") || Says(error, "ValidatingAdmissionPolicy") ||
      Says(error, "LimitRange") || Says(error, "per Container is") || Says(error, "per Pod is"))
    return RefusalKind::kAdmission;
  return RefusalKind::kForbidden;
}

Duration RefusalPause(int32_t in_a_row) {
  Duration pause = kFirstPause;
  for (int32_t i = 1; i < in_a_row && pause < kLastPause; ++i) pause *= 2;
  return std::min(pause, kLastPause);
}

}  // namespace ringmaster::core
