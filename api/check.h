// SPDX-License-Identifier: Apache-2.0

// A tree against the field tables: types, unknown and missing fields, bounds, forms. Pure function.
#pragma once

#include <vector>

#include "api/load.h"
#include "api/node.h"
#include "api/schema.h"

namespace ringmaster::api {

// Enough for people; bounds what a hostile manifest costs.
inline constexpr size_t kMostProblems = 100;

// Appends a problem for everything wrong in `node`, with its place, until there are kMostProblems.
void CheckTree(const Node& node, const Schema& schema, std::vector<Problem>& problems);

// "must be one of a, b, c": the words for a value that is none of Rules::values.
std::string OneOf(const Rules& rules);

}  // namespace ringmaster::api
