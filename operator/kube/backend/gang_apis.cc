// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/gang_apis.h"

#include <algorithm>
#include <iterator>
#include <utility>

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

bool IsAvailable(wiring::Gang gang, const GangApis& apis) {
  return std::none_of(std::begin(kGangApis), std::end(kGangApis),
                      [&](GangApi api) { return GangOf(api) == gang && !Served(apis, api); });
}

namespace {

constexpr std::pair<wiring::Gang, const char*> kGangNames[] = {
    {wiring::Gang::kNone, "none"},
    {wiring::Gang::kGate, "gate"},
    {wiring::Gang::kNative, "native"},
    {wiring::Gang::kVolcano, "volcano"},
    {wiring::Gang::kCoscheduling, "coscheduling"},
};

}  // namespace

const char* GangName(wiring::Gang gang) {
  for (const auto& [value, name] : kGangNames)
    if (value == gang) return name;
  return "?";
}

std::optional<wiring::Gang> ParseGang(std::string_view text) {
  for (const auto& [value, name] : kGangNames)
    if (name == text) return value;
  return std::nullopt;
}

std::optional<wiring::Gang> ChooseGang(const GangChoice& choice, const GangApis& apis) {
  switch (choice.mode) {
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
  if (choice.max_pods <= 1) return wiring::Gang::kNone;
  if (choice.automatic != core::GangMode::kAuto)
    return ChooseGang({choice.automatic, choice.automatic, choice.max_pods}, apis);
  if (Served(apis, GangApi::kNative)) return wiring::Gang::kNative;
  return choice.volcano_runs && Served(apis, GangApi::kVolcano) ? wiring::Gang::kVolcano
                                                                : wiring::Gang::kGate;
}

}  // namespace ringmaster::kube
