// SPDX-License-Identifier: Apache-2.0

// The part of a PodTemplateSpec with a schema: the lists that server-side apply merges by key (containers,
// variables, volumes). The API server validates the rest of a template when the operator creates pods. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "api/schema.h"
#include "base/json.h"

namespace ringmaster::api {

std::vector<Schema> PodTemplateFields();

// Returns the member of an object; null when `object` is none, or has no such member.
const Json* MemberOf(const Json* object, const char* name);

// Whether an annotation asks Kueue to choose the nodes.
bool AsksKueueForTopology(const Json& pod_template);

// Returns the node label whose values are the domains that an annotation asks Kueue for; empty: none.
std::string KueueTopologyOf(const Json& pod_template);

// Returns the container of a template that trains: `worker`, or else the first one. Null when there is none;
// a template may have any shape.
const Json* TrainingContainer(const Json& pod_template);

}  // namespace ringmaster::api
