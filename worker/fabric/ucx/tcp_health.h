// SPDX-License-Identifier: Apache-2.0

// Finds TCP connections whose other end has vanished without a word: a broken NIC, a lost route, a firewall
// that drops packets. The kernel repeats unacknowledged data for a quarter of an hour before it gives up, and
// UCX does not expose its sockets.
#pragma once

#include <string>

#include "base/time.h"

namespace ringmaster::fabric::ucx {

// Returns the remote address ("10.0.0.7:41234") of an open TCP connection of this process that has repeated
// data in vain for longer than `limit`; empty when there is none. A peer that is alive acknowledges even
// while its process computes, because its kernel answers.
std::string FindUnacknowledged(Duration limit);

}  // namespace ringmaster::fabric::ucx
