// SPDX-License-Identifier: Apache-2.0

// The PodGroup APIs that the API server serves, and which of them a job uses. Pure values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "operator/core/job.h"
#include "operator/kube/resource.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::kube {

enum class GangApi : uint8_t { kNative, kVolcano, kCoscheduling };

inline constexpr GangApi kGangApis[] = {GangApi::kNative, GangApi::kVolcano, GangApi::kCoscheduling};

// Returns the objects that hold a gang in this version of the API.
Resource ResourceOf(GangApi api, std::string_view version);
// The only version of Volcano's and of coscheduling's; the newest of the native one that is known.
const char* NewestVersion(GangApi api);
// Returns whose object a resource of this group and name is; nullopt: it holds no gang.
std::optional<GangApi> GangApiOf(std::string_view group, std::string_view plural);
const char* GangApiName(GangApi api);  // as in spec.scheduling.gang

// Result of discovery: the version that is served, empty: none; absent: no answer yet.
using GangApis = std::map<GangApi, std::string>;
std::string ServedVersion(const GangApis& apis, GangApi api);  // empty also without an answer
// Returns whether `auto` means native gangs: a scheduler that knows them belongs to the version.
bool TakesNative(const GangApis& apis);

// The versions of the group of native gangs that the API server lists: those that the operator can use, the
// newest first, and of the others the first that is not the one of PriorityClasses.
struct NativeVersions {
  std::vector<const wiring::NativeApi*> usable;
  std::string unknown;
};
NativeVersions ReadNativeVersions(const Json& group);

// What decides about the gang of a job, except for the APIs.
struct GangChoice {
  core::GangMode mode = core::GangMode::kAuto;       // of the job
  core::GangMode automatic = core::GangMode::kAuto;  // what kAuto means
  int32_t max_pods = 1;
  bool volcano_runs = false;  // its scheduler, and no template names another one
  bool native_tears = false;  // the scheduler has placed a native gang in part
};

// Returns what the job uses; nullopt: it requires an API that is not served. With kAuto, a gang of one pod
// uses none, and others what `automatic` names. If that is kAuto, too: native PodGroups if they are served
// and their scheduler is not known to place gangs in part, then Volcano if its scheduler runs, otherwise the
// gate. The API server serves native PodGroups only where a cluster's administrator has enabled them, whereas
// the definition of another scheduler's PodGroup remains when the scheduler is gone.
std::optional<wiring::Gang> ChooseGang(const GangChoice& choice, const GangApis& apis);

// Whether this provider can be used: it needs no API, or the API is served.
bool IsAvailable(wiring::Gang gang, const GangApis& apis);

// Whether the provider is a scheduler that places a gang in one step (core::Observed::all_at_once).
// Coscheduling keeps nodes for a part of a gang until its timeout.
bool PlacesAtOnce(wiring::Gang gang, const GangApis& apis);

const char* GangName(wiring::Gang gang);  // as in spec.scheduling.gang
std::optional<wiring::Gang> ParseGang(std::string_view name);

}  // namespace ringmaster::kube
