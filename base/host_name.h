// SPDX-License-Identifier: Apache-2.0

#pragma once

#include <string>

namespace ringmaster {

// Returns the name of this host, in a pod that of the pod; empty: it is unknown.
std::string HostName();

}  // namespace ringmaster
