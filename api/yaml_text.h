// SPDX-License-Identifier: Apache-2.0

// JSON values as block-style YAML that every reader takes for the same values. Pure function.
#pragma once

#include <string>

#include "base/json.h"

namespace ringmaster::api {

// Keys in the order of the object (sorted), two spaces per level, text quoted wherever it could be anything
// but text. Ends with a line end.
std::string YamlText(const Json& value);

}  // namespace ringmaster::api
