// SPDX-License-Identifier: Apache-2.0

// The forms that a string field can have, each with one pattern that our checker and the CRD share. Pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "api/schema.h"

namespace ringmaster::api {

struct FormText {
  const char*
      pattern;  // anchored; read alike by std::regex (ECMAScript) and by RE2. Empty: not told by a pattern
  const char* words;  // "must be ..." without the "must"
};

const FormText& TextOf(Form form);

// False for text over 1024 bytes: std::regex recurses once per character.
bool Matches(Form form, std::string_view text);

// Why `text` is no regular expression; empty when it is one. The syntax is RE2's: the one that the API
// server's rules check with, and whose matching takes linear time whatever the pattern.
std::string PatternError(std::string_view text);

}  // namespace ringmaster::api
