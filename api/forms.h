// SPDX-License-Identifier: Apache-2.0

// The formats of string fields. CheckTree and the CRD use the same pattern for each. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "api/schema.h"

namespace ringmaster::api {

struct FormText {
  // Anchored; std::regex (ECMAScript) and RE2 interpret it the same. Empty: no pattern describes the format.
  const char* pattern;
  const char* words;  // "must be ..." without the "must"
};

const FormText& TextOf(Form form);

// False for text over 1024 bytes: std::regex recurses once per character.
bool Matches(Form form, std::string_view text);

// Returns why `text` is not a valid regular expression; empty when it is one. The syntax is RE2's: CEL uses
// it too, and it matches in linear time for every pattern.
std::string PatternError(std::string_view text);

}  // namespace ringmaster::api
