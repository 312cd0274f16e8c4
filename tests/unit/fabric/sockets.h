// SPDX-License-Identifier: Apache-2.0

// Disturbs the TCP sockets of this process as broken networks do. UCX does not expose its sockets.
#pragma once

#include <vector>

namespace ringmaster::fabric::testing {

// Returns the TCP sockets of this process, listening ones included.
std::vector<int> TcpSockets();

// Drops all packets that arrive for the sockets, as a broken network does.
void DropAllPackets(const std::vector<int>& sockets);

// Lets the next `count` calls of connect(2) by this thread fail with `error`, as the kernel does while a
// route or a listener is missing. Returns false where the kernel does not permit that.
bool RefuseConnections(int count, int error);

// Opens a connection of the program within this process that repeats data in vain from now on.
void OpenSilentConnection();

}  // namespace ringmaster::fabric::testing
