// SPDX-License-Identifier: Apache-2.0

// The EndpointSlice by which the leader becomes the endpoint of the rendezvous Service. The Service has no
// selector: a label would stay on a pod that has lost the Lease.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace ringmaster::operator_main {

// Returns the object for server-side apply.
Json EndpointSliceFor(const std::string& service, const std::string& namespace_, const std::string& ip,
                      uint16_t port);

}  // namespace ringmaster::operator_main
