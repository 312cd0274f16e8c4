// SPDX-License-Identifier: Apache-2.0

// Nodes, namespaces and objects of ours as records. Pure.
#pragma once

#include <memory>

#include "base/json.h"
#include "operator/kube/backend/records.h"
#include "operator/kube/wall_time.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {

// Unreachable: nothing has been heard of its kubelet (Ready is Unknown). A node that says itself that it is
// not ready is not.
std::shared_ptr<const NodeRecord> DecodeNode(const Json& object, const Meta& meta,
                                             const std::shared_ptr<const NodeRecord>& before,
                                             const WallClock& clock, Time now);

std::shared_ptr<const NamespaceRecord> DecodeNamespace(const Json& object);

// Null: not ours.
std::shared_ptr<const ObjectRecord> DecodeObject(const Json& object, const Meta& meta, Interners& interners);

}  // namespace ringmaster::kube
