// SPDX-License-Identifier: Apache-2.0

// Long work of one rank, such as I/O on a slow disk, that all other ranks wait for.
#pragma once

#include <functional>

#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::trainer {

// Collective: runs `work` on `root`, in a separate thread, and returns on all ranks when it is done. The
// ranks exchange a keepalive every `period`, so that the communicator's deadline, which detects hanging
// peers, does not expire. REQUIRES: `period` is well below that deadline. When the communicator fails, root
// still completes its work before it returns.
Status RunOnRootWithKeepalive(fabric::Communicator* comm, int root, const std::function<void()>& work,
                              Duration period);

}  // namespace ringmaster::trainer
