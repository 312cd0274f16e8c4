// SPDX-License-Identifier: Apache-2.0

// Walking and building objects of the API server's kind without ever throwing on a shape that a user got
// wrong. Pure functions.
#pragma once

#include <initializer_list>
#include <string>

#include "base/json.h"

namespace ringmaster::wiring {

// The member at the end of `path`, or nullptr when something on the way is missing or no object.
const Json* Find(const Json& root, std::initializer_list<const char*> path);

// The text there, or "".
std::string Text(const Json& root, std::initializer_list<const char*> path);

// Member `key` of `parent` as an object, or as a list: made when it is missing, made anew when it is
// something else (shape.h has told the user before).
Json& ObjectIn(Json& parent, const char* key);
Json& ListIn(Json& parent, const char* key);

// The element of a list whose member `key` is `value`, or nullptr.
Json* FindByKey(Json& list, const char* key, const std::string& value);

// `value` at the end of the list, unless an equal one is there.
void AddOnce(Json& list, Json value);

}  // namespace ringmaster::wiring
