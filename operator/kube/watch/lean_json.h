// SPDX-License-Identifier: Apache-2.0

// JSON of API objects, as little of it as is needed. Objects that others own may be huge, deep or hostile,
// and one of them must never stop a watch of all the others: so, unlike ParseJson (base/json.h), this keeps
// the last of duplicate keys, cuts what is nested too deeply, and leaves out metadata.managedFields, which is
// half of most objects and of no use here. Pure.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace ringmaster::kube {

// Containers below this depth become empty ones: deeper than anything that is read, so that who checks a
// depth of its own (api::FromJson) still sees that it is exceeded, and shallow enough for recursion.
inline constexpr size_t kLeanDepth = 80;

Result<Json> ParseLean(std::string_view text);

}  // namespace ringmaster::kube
