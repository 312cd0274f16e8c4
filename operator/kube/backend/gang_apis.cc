// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/gang_apis.h"

namespace ringmaster::kube {
namespace {

wiring::Gang GangOf(GangApi api) {
  switch (api) {
    case GangApi::kNative:
      return wiring::Gang::kNative;
    case GangApi::kVolcano:
      return wiring::Gang::kVolcano;
    case GangApi::kCoscheduling:
      return wiring::Gang::kCoscheduling;
  }
  return wiring::Gang::kNone;
}

bool Served(const GangApis& apis, GangApi api) {
  const auto it = apis.find(api);
  return it != apis.end() && it->second;
}

std::optional<wiring::Gang> IfServed(const GangApis& apis, GangApi api) {
  if (!Served(apis, api)) return std::nullopt;
  return GangOf(api);
}

}  // namespace

Resource ResourceOf(GangApi api) {
  switch (api) {
    case GangApi::kNative:
      return {"scheduling.k8s.io", "v1beta1", "podgroups"};
    case GangApi::kVolcano:
      return {"scheduling.volcano.sh", "v1beta1", "podgroups"};
    case GangApi::kCoscheduling:
      return {"scheduling.x-k8s.io", "v1alpha1", "podgroups"};
  }
  return {};
}

const char* GangApiName(GangApi api) {
  switch (api) {
    case GangApi::kNative:
      return "native";
    case GangApi::kVolcano:
      return "volcano";
    case GangApi::kCoscheduling:
      return "coscheduling";
  }
  return "?";
}

std::optional<wiring::Gang> ChooseGang(core::GangMode mode, int32_t max_pods, const GangApis& apis) {
  switch (mode) {
    case core::GangMode::kNone:
      return wiring::Gang::kNone;
    case core::GangMode::kGate:
      return wiring::Gang::kGate;
    case core::GangMode::kNative:
      return IfServed(apis, GangApi::kNative);
    case core::GangMode::kVolcano:
      return IfServed(apis, GangApi::kVolcano);
    case core::GangMode::kCoscheduling:
      return IfServed(apis, GangApi::kCoscheduling);
    case core::GangMode::kAuto:
      break;
  }
  if (max_pods <= 1) return wiring::Gang::kNone;
  for (const GangApi api : kGangApis)
    if (Served(apis, api)) return GangOf(api);
  return wiring::Gang::kGate;
}

}  // namespace ringmaster::kube
