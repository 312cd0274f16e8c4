// SPDX-License-Identifier: Apache-2.0

// Maps the controller's SetGang to the coordinator's options: the only place that converts pods (SetGang) to
// members (the coordinator). Pure.
#pragma once

#include <string>

#include "operator/core/model.h"
#include "rendezvous/coordinator.h"

namespace ringmaster::control {

// The limits of `order` in members: each pod has `order.slots` of them.
rendezvous::SetLimits LimitsOf(const core::SetGang& order);

// Options for the coordinator of `job` ("namespace/name"). Term, resumption and time limits keep their
// defaults.
rendezvous::CoordinatorOptions CoordinatorOptionsOf(const std::string& job, const core::SetGang& order);

}  // namespace ringmaster::control
