// SPDX-License-Identifier: Apache-2.0

// Which kinds of PodGroup the API server serves, and which of them a job gets. Pure values.
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

// What discovery said: served or not; absent: no answer yet.
using GangApis = std::map<GangApi, bool>;

// For a job that asks for `mode`. nullopt: it asks for one that is not there. A gang of one, left to us,
// needs nobody.
std::optional<wiring::Gang> ChooseGang(core::GangMode mode, int32_t most_pods, const GangApis& apis);

}  // namespace ringmaster::kube
