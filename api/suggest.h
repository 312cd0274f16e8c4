// SPDX-License-Identifier: Apache-2.0

// Suggests names for misspelled ones ("did you mean"). Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/schema.h"

namespace ringmaster::api {

// Returns the candidate with the smallest edit distance to `word` if the distance is small enough, otherwise
// an empty text.
std::string_view Nearest(std::string_view word, const std::vector<std::string_view>& candidates);

// Returns `; did you mean "replicas"?` for an unknown field of `schema`. If no field of it is near, but
// exactly one other object of the spec has a field with this name, suggests its path. Empty without a
// suggestion.
std::string SuggestField(const Schema& schema, std::string_view field);

}  // namespace ringmaster::api
