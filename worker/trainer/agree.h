// SPDX-License-Identifier: Apache-2.0

// Members of a generation compute on devices of one kind, with one plan: else results would depend on who
// computed what. Thread rule: main thread.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "worker/compute/device/device.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::trainer {

// Collective; every member calls with the same root, and takes over its plan. kConflict when this member's
// device is another one than the root's: it must not take part.
Status AgreeOnDevice(fabric::Communicator* comm, int root, device::Device* device);

// What a checkpoint keeps of the device, and back from one: the same device takes up the plan, so that a run
// goes on with the bits it would have had. Another device goes on with its own, which is said.
Json DescribeDevice(const device::Device& device);
void AdoptDevicePlan(const Json& meta, device::Device* device);

}  // namespace ringmaster::trainer
