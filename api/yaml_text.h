// SPDX-License-Identifier: Apache-2.0

// Writes JSON values as block-style YAML that every YAML reader interprets the same. Pure function.
#pragma once

#include <string>

#include "base/json.h"

namespace ringmaster::api {

// Keys are sorted; two spaces per level. Text that a reader could interpret as another type is quoted. Ends
// with a newline.
std::string YamlText(const Json& value);

}  // namespace ringmaster::api
