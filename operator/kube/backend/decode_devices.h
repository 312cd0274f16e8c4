// SPDX-License-Identifier: Apache-2.0

// Decodes the objects of dynamic resource allocation (resource.k8s.io/v1). Pure.
#pragma once

#include <memory>

#include "base/json.h"
#include "operator/core/capacity/device_room.h"
#include "operator/kube/backend/records.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {

std::shared_ptr<const core::DeviceSlice> DecodeResourceSlice(const Json& object, Interners& interners);
std::shared_ptr<const core::DeviceClass> DecodeDeviceClass(const Json& object, const Meta& meta);
std::shared_ptr<const core::ClaimTemplate> DecodeClaimTemplate(const Json& object);
// Returns null for a claim that is not allocated.
std::shared_ptr<const core::DeviceClaim> DecodeResourceClaim(const Json& object, const Meta& meta);

}  // namespace ringmaster::kube
