// SPDX-License-Identifier: Apache-2.0

// The PodGroup APIs that the API server serves, and which of them a job uses. Pure values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
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
// gang of one pod uses none.
std::optional<wiring::Gang> ChooseGang(core::GangMode mode, int32_t max_pods, const GangApis& apis);

}  // namespace ringmaster::kube
