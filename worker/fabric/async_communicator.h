// SPDX-License-Identifier: Apache-2.0

// Collectives of a device, which executes enqueued work in order: a communicator that can also start sums
// without waiting for them.
//
// Not thread-safe. REQUIRES: no other call between the first StartAllReduce and Finish.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::fabric {

class AsyncCommunicator : public Communicator {
 public:
  // Enqueues an AllReduce. The device owns `data` until Finish; after a failure `data` holds garbage.
  virtual Status StartAllReduce(std::span<int32_t> data, ReduceOp op) = 0;
  virtual Status StartAllReduce(std::span<float> data, ReduceOp op) = 0;
  // Waits until all started operations are done, or have failed and the device no longer uses their memory.
  virtual Status Finish() = 0;
};

}  // namespace ringmaster::fabric
