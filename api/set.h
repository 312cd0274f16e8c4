// SPDX-License-Identifier: Apache-2.0

// --set spec.path=value onto the tree of a manifest. Pure function.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "api/load.h"
#include "api/node.h"

namespace ringmaster::api {

// Sets the value at `path`, making the objects on the way. The value is YAML, but where the field is a string
// it is taken as it stands (learningRate=0.01 needs no quotes; "null" takes the field away). A path that does
// not exist, or a value that is not YAML, becomes a problem under `path`.
void ApplySet(Node& root, const std::string& path, const std::string& value, std::vector<Problem>& problems);

}  // namespace ringmaster::api
