// SPDX-License-Identifier: Apache-2.0

// Applies --set spec.path=value to the tree of a manifest. Pure function.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "api/load.h"
#include "api/node.h"

namespace ringmaster::api {

// Sets the value at `path` and creates missing parent objects. The value is YAML, except that a string field
// takes the text literally (learningRate=0.01 needs no quotes); "null" removes the field. An unknown path or
// invalid YAML becomes a problem under `path`.
void ApplySet(Node& root, const std::string& path, const std::string& value, std::vector<Problem>& problems);

}  // namespace ringmaster::api
