// SPDX-License-Identifier: Apache-2.0

// Strategic merge of a PodTemplateSpec: keyed lists merge by key, maps merge by member, other lists are
// replaced, null removes. The keys are those of server-side apply. Pure function.
#pragma once

#include "base/json.h"

namespace ringmaster::wiring {

// Returns `base` with `over` applied. List elements of `base` come first, then the new ones, each in their
// order. Of duplicate keys in a list, the last one wins. An element that has a single source (a variable, a
// volume, a claim) is replaced when the source differs.
Json StrategicMerge(Json base, const Json& over);

}  // namespace ringmaster::wiring
