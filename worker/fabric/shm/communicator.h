// SPDX-License-Identifier: Apache-2.0

// The Communicator of members on one host: each reads what it needs directly from its peers' memory.
#pragma once

#include <memory>

#include "worker/fabric/communicator.h"
#include "worker/fabric/shm/group.h"

namespace ringmaster::fabric::shm {

std::unique_ptr<Communicator> NewCommunicator(std::unique_ptr<Group> group);

}  // namespace ringmaster::fabric::shm
