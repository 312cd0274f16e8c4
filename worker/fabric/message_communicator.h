// SPDX-License-Identifier: Apache-2.0

// The Communicator over a Transport: chooses the algorithm by size and world, numbers the operations, and
// remembers the first failure.
#pragma once

#include <memory>

#include "worker/fabric/communicator.h"
#include "worker/fabric/transport.h"

namespace ringmaster::fabric {

std::unique_ptr<Communicator> NewMessageCommunicator(std::unique_ptr<Transport> transport);

}  // namespace ringmaster::fabric
