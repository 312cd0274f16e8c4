// SPDX-License-Identifier: Apache-2.0

// The part of a PodTemplateSpec with a schema: the lists that server-side apply merges by key (containers,
// variables, volumes). The API server validates the rest of a template when the operator creates pods. Pure
// function.
#pragma once

#include <vector>

#include "api/schema.h"

namespace ringmaster::api {

std::vector<Schema> PodTemplateFields();

}  // namespace ringmaster::api
