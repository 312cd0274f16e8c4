// SPDX-License-Identifier: Apache-2.0

// Decodes nodes, namespaces, priority classes and the objects of jobs into records. Pure.
#pragma once

#include <memory>

#include "base/json.h"
#include "operator/core/capacity/label_selector.h"
#include "operator/kube/backend/records.h"
#include "operator/kube/wall_time.h"
#include "operator/kube/watch/meta.h"

namespace ringmaster::kube {

// A node is unreachable if its kubelet does not report (Ready is Unknown). A node that reports that it is not
// ready is reachable.
std::shared_ptr<const NodeRecord> DecodeNode(const Json& object, const Meta& meta,
                                             const std::shared_ptr<const NodeRecord>& before,
                                             const WallClock& clock, Time now);

// `managed`: the namespaces of NamespaceRecord::managed.
std::shared_ptr<const NamespaceRecord> DecodeNamespace(const Json& object,
                                                       const core::LabelSelector& managed);

std::shared_ptr<const PriorityClassRecord> DecodePriorityClass(const Json& object, const Meta& meta);

// Returns null if the object belongs to no job.
std::shared_ptr<const ObjectRecord> DecodeObject(const Json& object, const Meta& meta, Interners& interners);

}  // namespace ringmaster::kube
