// SPDX-License-Identifier: Apache-2.0

// Collectives of a device, which works off what it is given in order and on its own: a communicator whose
// sums can also be asked for without waiting for them.
//
// Between the first Start and Finish nothing else is called. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::fabric {

class AsyncCommunicator : public Communicator {
 public:
  // AllReduce that only hands the work over. `data` is the device's until Finish; what it holds when an
  // operation fails is garbage.
  virtual Status StartAllReduce(std::span<int32_t> data, ReduceOp op) = 0;
  virtual Status StartAllReduce(std::span<float> data, ReduceOp op) = 0;
  // Until all that was started is done, or has failed and the device has left its memory alone.
  virtual Status Finish() = 0;
};

}  // namespace ringmaster::fabric
