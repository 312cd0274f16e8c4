// SPDX-License-Identifier: Apache-2.0

// The metadata of an API object. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "operator/kube/watch/sink.h"

namespace ringmaster::kube {

struct Meta {
  std::string key;  // "namespace/name", or "name" for cluster-wide kinds; empty: not an object
  std::string namespace_;
  std::string name;
  std::string uid;
  Revision revision = 0;
};

Meta ReadMeta(const Json& object);

inline Revision RevisionOf(const Json& object) { return ReadMeta(object).revision; }

// Returns the reference to the controlling owner; JSON null: there is none.
const Json& ControllerOf(const Json& object);
// The uid of the controlling owner; empty: there is none.
std::string ControllerUid(const Json& object);
// Describes the controlling owner for messages: "belongs to KIND NAME (uid UID)".
std::string DescribeController(const Json& object);

}  // namespace ringmaster::kube
