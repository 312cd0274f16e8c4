// SPDX-License-Identifier: Apache-2.0

// The CustomResourceDefinition, from the field tables and from the rules of cel_rules.h. Pure functions.
#pragma once

#include <string>

#include "base/json.h"

namespace ringmaster::api {

Json CustomResourceDefinition();

// crds/ringmaster.dev_trainingjobs.yaml is its output.
std::string CrdYaml();

}  // namespace ringmaster::api
