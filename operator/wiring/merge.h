// SPDX-License-Identifier: Apache-2.0

// The strategic merge of a PodTemplateSpec: lists that have a key merge by it, maps merge by member, other
// lists are replaced, null takes away. The keys are those of server-side apply. Pure functions.
#pragma once

#include "base/json.h"

namespace ringmaster::wiring {

// What `over` says on top of `base`. Elements of `base` come first, then the new ones, each in their order.
// Where a key stands twice in a list, the last one wins. An element that can have one source only (a
// variable, a volume, a claim) is replaced when the source is another one.
Json StrategicMerge(Json base, const Json& over);

}  // namespace ringmaster::wiring
