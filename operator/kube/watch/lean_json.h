// SPDX-License-Identifier: Apache-2.0

// Parses the JSON of API objects leniently. Objects of other controllers may be huge, deep or hostile, and
// one of them must not stop the watch of all others. So, unlike ParseJson (base/json.h), this keeps the last
// of duplicate keys, truncates what is nested too deeply, and drops metadata.managedFields, which is half of
// most objects and unused here. Pure.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace ringmaster::kube {

// Containers below this depth become empty. It is deeper than anything that is read, so that api::FromJson
// still detects too much depth, and shallow enough for recursion.
inline constexpr size_t kLeanDepth = 80;

Result<Json> ParseLean(std::string_view text);

}  // namespace ringmaster::kube
