// SPDX-License-Identifier: Apache-2.0

// Makes the rendezvous Service lead to this replica: an EndpointSlice that the leader writes, for a Service
// without a selector. A selector could not follow the leader: a label stays on a pod that leads no more.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace ringmaster::operator_main {

// For server-side apply.
Json EndpointSliceFor(const std::string& service, const std::string& namespace_, const std::string& ip,
                      uint16_t port);

}  // namespace ringmaster::operator_main
