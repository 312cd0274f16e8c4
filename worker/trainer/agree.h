// SPDX-License-Identifier: Apache-2.0

// Agreement of a generation's members on one kind of device and one plan, since results would depend on which
// member computed what otherwise, and on what has been validated. Not thread-safe; main thread only.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "rendezvous/messages.h"
#include "worker/compute/device/device.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::trainer {

// Collective: every member calls it with the same root, and adopts the root's plan. Errors: kConflict when
// this member's device differs from the root's; it must not take part.
Status AgreeOnDevice(fabric::Communicator* comm, int root, device::Device* device);

// Collective: returns the root's newest validation to every member, so that all agree whether one is due.
// `own`: that of this member; nullopt: none.
Result<std::optional<rendezvous::ValidationResult>> AgreeOnValidation(
    fabric::Communicator* comm, int root, const std::optional<rendezvous::ValidationResult>& own);

// Describes the device for a checkpoint, and adopts the plan of such a description if the device is of the
// same kind, so that a resumed run computes the same bits. On another kind of device the run keeps the
// device's own plan, with a warning.
Json DescribeDevice(const device::Device& device);
// Returns in what the build that wrote this description and this one differ; empty if in nothing.
std::string DifferentBuild(const Json& meta);
void AdoptDevicePlan(const Json& meta, device::Device* device);

}  // namespace ringmaster::trainer
