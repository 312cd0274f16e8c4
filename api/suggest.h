// SPDX-License-Identifier: Apache-2.0

// "Did you mean": the nearest name. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/schema.h"

namespace ringmaster::api {

// The candidate with the smallest edit distance to `word`, when it is near enough to be what was meant;
// else empty.
std::string_view Nearest(std::string_view word, const std::vector<std::string_view>& candidates);

// `; did you mean "replicas"?` for an unknown field of `schema`; when none of its fields is near, but the
// name stands in exactly one other place of the spec, that place. Empty when there is nothing to suggest.
std::string SuggestField(const Schema& schema, std::string_view field);

}  // namespace ringmaster::api
