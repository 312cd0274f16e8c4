// SPDX-License-Identifier: Apache-2.0

// The rules that an OpenAPI schema cannot express, as CEL expressions for the API server. They check what
// rules.cc and update.cc check, with the same paths and messages. As there, a rule is skipped when a field
// that it reads is invalid by itself, so that one mistake gives one message. Pure functions.
#pragma once

#include <string>

#include "api/schema.h"
#include "base/json.h"

namespace ringmaster::api {

// Returns the x-kubernetes-validations of the node at `path`, whose schema is `schema`: "" is the root,
// "spec.restart.rules[]" an entry of the list. The list is empty when the node has no rules.
Json CelRulesAt(const Schema& schema, const std::string& path);

}  // namespace ringmaster::api
