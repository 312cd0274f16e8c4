// SPDX-License-Identifier: Apache-2.0

// Generates the CustomResourceDefinition from the field tables and from cel_rules.h. Pure functions.
#pragma once

#include <string>

#include "base/json.h"

namespace ringmaster::api {

Json CustomResourceDefinition();

// Returns the text of crds/ringmaster.dev_trainingjobs.yaml.
std::string CrdYaml();

}  // namespace ringmaster::api
