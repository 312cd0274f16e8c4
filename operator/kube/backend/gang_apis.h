// SPDX-License-Identifier: Apache-2.0

// The PodGroup APIs that the API server serves, and which of them a job uses. Pure values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/job.h"
#include "operator/kube/resource.h"
#include "operator/wiring/wiring.h"

namespace ringmaster::kube {

enum class GangApi : uint8_t { kNative, kVolcano, kCoscheduling };

inline constexpr GangApi kGangApis[] = {GangApi::kNative, GangApi::kVolcano, GangApi::kCoscheduling};

Resource ResourceOf(GangApi api);
const char* GangApiName(GangApi api);  // as in spec.scheduling.gang

// Result of discovery: served or not; absent: no answer yet.
using GangApis = std::map<GangApi, bool>;

// Returns what a job with this `mode` uses; nullopt: it requires an API that is not served. With kAuto, a
// gang of one pod uses none, and others what `automatic` names. If that is kAuto, too: native PodGroups if
// they are served, otherwise the gate. The API server serves them only where a cluster's administrator has
// enabled them, whereas the definition of another scheduler's PodGroup remains when the scheduler is gone.
std::optional<wiring::Gang> ChooseGang(core::GangMode mode, core::GangMode automatic, int32_t max_pods,
                                       const GangApis& apis);

// Whether this provider can be used: it needs no API, or the API is served.
bool IsAvailable(wiring::Gang gang, const GangApis& apis);

const char* GangName(wiring::Gang gang);  // as in spec.scheduling.gang
std::optional<wiring::Gang> ParseGang(std::string_view name);

}  // namespace ringmaster::kube
