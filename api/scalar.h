// SPDX-License-Identifier: Apache-2.0

// Resolves plain (unquoted) YAML scalars as kubectl does, which reads YAML 1.1: 0400 is 256, yes is true, and
// 1:30 is text. Rejects those that have no value in JSON. Pure functions.
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
