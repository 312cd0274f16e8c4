// SPDX-License-Identifier: Apache-2.0

// The part of a PodTemplateSpec that must have a certain shape, because lists in it merge by key: containers,
// variables, volumes. Everything else in a template is for the API server to judge when pods are made. Pure.
#pragma once

#include <vector>

#include "api/schema.h"

namespace ringmaster::api {

std::vector<Schema> PodTemplateFields();

}  // namespace ringmaster::api
