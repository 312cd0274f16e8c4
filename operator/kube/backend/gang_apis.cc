// SPDX-License-Identifier: Apache-2.0

#include "operator/kube/backend/gang_apis.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "operator/kube/backend/resources.h"
#include "operator/wiring/native_gang.h"

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

bool Served(const GangApis& apis, GangApi api) { return !ServedVersion(apis, api).empty(); }

std::optional<wiring::Gang> IfServed(const GangApis& apis, GangApi api) {
  if (!Served(apis, api)) return std::nullopt;
  return GangOf(api);
}

}  // namespace

const char* NewestVersion(GangApi api) {
  switch (api) {
    case GangApi::kNative:
      return wiring::kNativeApis[0].version;
    case GangApi::kVolcano:
      return "v1beta1";
    case GangApi::kCoscheduling:
      return "v1alpha1";
  }
  return "";
}

Resource ResourceOf(GangApi api, std::string_view version) {
  const wiring::NativeApi* native = wiring::FindNativeApi(version);
  switch (api) {
    case GangApi::kNative:
      return {wiring::kNativeGroup, std::string(version), native != nullptr ? native->plural : "podgroups"};
    case GangApi::kVolcano:
      return {"scheduling.volcano.sh", std::string(version), "podgroups"};
    case GangApi::kCoscheduling:
      return {"scheduling.x-k8s.io", std::string(version), "podgroups"};
  }
  return {};
}

std::optional<GangApi> GangApiOf(std::string_view group, std::string_view plural) {
  for (const GangApi api : kGangApis) {
    if (ResourceOf(api, "").group != group) continue;
    if (plural == "podgroups" || (api == GangApi::kNative && plural == "workloads")) return api;
  }
  return std::nullopt;
}

std::string ServedVersion(const GangApis& apis, GangApi api) {
  const auto it = apis.find(api);
  return it == apis.end() ? std::string() : it->second;
}

bool TakesNative(const GangApis& apis) {
  const wiring::NativeApi* native = wiring::FindNativeApi(ServedVersion(apis, GangApi::kNative));
  return native != nullptr && native->automatic;
}

NativeVersions ReadNativeVersions(const Json& group) {
  NativeVersions versions;
  std::vector<std::string> listed;
  for (const Json& item : json::Items(group, "versions")) listed.emplace_back(json::Text(item, "version"));
  for (const wiring::NativeApi& api : wiring::kNativeApis)
    if (std::find(listed.begin(), listed.end(), api.version) != listed.end()) versions.usable.push_back(&api);
  const auto unknown = std::find_if(listed.begin(), listed.end(), [](const std::string& version) {
    return version != kPriorityClasses.version && wiring::FindNativeApi(version) == nullptr;
  });
  if (unknown != listed.end()) versions.unknown = *unknown;
  return versions;
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

bool PlacesAtOnce(wiring::Gang gang, const GangApis& apis) {
  const wiring::NativeApi* native = wiring::FindNativeApi(ServedVersion(apis, GangApi::kNative));
  return gang == wiring::Gang::kVolcano ||
         (gang == wiring::Gang::kNative && native != nullptr && native->at_once);
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
  if (TakesNative(apis) && !choice.native_tears) return wiring::Gang::kNative;
  return choice.volcano_runs && Served(apis, GangApi::kVolcano) ? wiring::Gang::kVolcano
                                                                : wiring::Gang::kGate;
}

}  // namespace ringmaster::kube
