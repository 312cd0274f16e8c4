// SPDX-License-Identifier: Apache-2.0

// What every object says of itself. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "operator/kube/watch/sink.h"

namespace ringmaster::kube {

struct Meta {
  std::string key;  // "namespace/name", or "name" of what has no namespace; empty: not an object
  std::string namespace_;
  std::string name;
  std::string uid;
  Revision revision = 0;
};

Meta ReadMeta(const Json& object);

}  // namespace ringmaster::kube
