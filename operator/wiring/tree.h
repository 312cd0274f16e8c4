// SPDX-License-Identifier: Apache-2.0

// Reading and building Kubernetes objects without throwing on a wrong shape. Pure functions.
#pragma once

#include <initializer_list>
#include <string>

#include "base/json.h"

namespace ringmaster::wiring {

// Returns the member at the end of `path`, or nullptr when a part of the path is missing or not an object.
const Json* Find(const Json& root, std::initializer_list<const char*> path);

// Returns the string at `path`, or "".
std::string Text(const Json& root, std::initializer_list<const char*> path);

// Returns member `key` of `parent` as an object or a list. Creates it when it is missing, and replaces it
// when it has another type (template.h reports that to the user).
Json& ObjectIn(Json& parent, const char* key);
Json& ListIn(Json& parent, const char* key);

// Returns the element of the list whose member `key` is `value`, or nullptr.
Json* FindByKey(Json& list, const char* key, const std::string& value);

// Appends `value` to the list unless an equal element exists.
void AddOnce(Json& list, Json value);

}  // namespace ringmaster::wiring
