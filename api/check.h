// SPDX-License-Identifier: Apache-2.0

// Checks a tree against the field tables: types, unknown and missing fields, bounds, formats. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "api/load.h"
#include "api/node.h"
#include "api/schema.h"

namespace ringmaster::api {

// Bounds the output and the cost of a hostile manifest.
inline constexpr size_t kMaxProblems = 100;

// Appends every problem of `node` with its position, up to kMaxProblems.
void CheckTree(const Node& node, const Schema& schema, std::vector<Problem>& problems);

// As CheckTree, for an object that the API server has stored: the paths of unknown fields go into `unknown`,
// also up to kMaxProblems, and keys and values of labels and annotations are not checked, since others set
// them and the server has.
void CheckStored(const Node& node, const Schema& schema, std::vector<Problem>& problems,
                 std::vector<std::string>& unknown);

// Returns "must be one of a, b, c", the message for a value that is not in Rules::values.
std::string OneOf(const Rules& rules);

}  // namespace ringmaster::api
