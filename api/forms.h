// The forms that a string field can have, each with one pattern that our checker and the CRD share. Pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "api/schema.h"

namespace ringmaster::api {

struct FormText {
  const char* pattern;  // anchored; read alike by std::regex (ECMAScript) and by RE2. Empty: anything
  const char* words;    // "must be ..." without the "must"
};

const FormText& TextOf(Form form);

// False for text over 1024 bytes: std::regex recurses once per character.
bool Matches(Form form, std::string_view text);

}  // namespace ringmaster::api
