// SPDX-License-Identifier: Apache-2.0

// Resolves plain (unquoted) YAML scalars, and rejects those that YAML readers interpret differently. Pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace ringmaster::api {

struct PlainScalar {
  Json value;           // boolean, number or string
  std::string refused;  // why the scalar is rejected and what to write instead; empty when it is accepted
};

// REQUIRES: `text` is not a null (yaml-cpp reports nulls).
PlainScalar ResolvePlain(std::string_view text);

}  // namespace ringmaster::api
