// SPDX-License-Identifier: Apache-2.0

// Work of one rank alone that may take long, as a slow disk's, which the others can only wait for.
#pragma once

#include <functional>

#include "base/result.h"
#include "base/time.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::trainer {

// Every rank calls it; `work` runs at `root`, on a thread of its own, and all of them return when it is done.
// The communicator's deadline is for peers that hang: so that it does not meet those who wait for one that
// works, they exchange a word every `period`, which is well below it. When the communicator fails, root still
// does its work to the end.
Status RunOnRootWithKeepalive(fabric::Communicator* comm, int root, const std::function<void()>& work,
                              Duration period);

}  // namespace ringmaster::trainer
