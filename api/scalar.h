// SPDX-License-Identifier: Apache-2.0

// What a plain (unquoted) YAML scalar means, for those on which all YAML readers agree. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace ringmaster::api {

struct PlainScalar {
  Json value;           // boolean, number or string
  std::string refused;  // not empty: readers disagree about it, or JSON cannot hold it; says what to write
};

// `text` is not a null (yaml-cpp reports these itself).
PlainScalar ResolvePlain(std::string_view text);

}  // namespace ringmaster::api
