// SPDX-License-Identifier: Apache-2.0

// The rules that a schema alone cannot say, as CEL expressions for the API server: what rules.cc and
// update.cc check, with the same paths and the same words. As there, a rule is skipped where a field that it
// reads is wrong by itself: one mistake, one message. Pure functions.
#pragma once

#include <string>

#include "api/schema.h"
#include "base/json.h"

namespace ringmaster::api {

// The x-kubernetes-validations of the node at `path`, which `schema` is about: "" is the root,
// "spec.restart.rules[]" an entry of the list. An empty list when there are none.
Json CelRulesAt(const Schema& schema, const std::string& path);

}  // namespace ringmaster::api
