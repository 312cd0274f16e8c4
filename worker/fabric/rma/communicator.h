// SPDX-License-Identifier: Apache-2.0

// Collectives on GPU memory by RMA gets: every member exposes where its data is and reads what it needs from
// the others; its device computes the sums. Large all-reduces take two rounds, as on the host: each member
// sums the share it owns, then reads the other shares from the members that summed them.
//
// A get from a member that gives up the generation or dies may return garbage without an error: nothing stops
// the member from reusing its memory, and memory of a dead process on the same machine may still be readable.
// Such an operation may succeed, but none after it can, since each needs that member. So a result is valid
// only once a later operation among the same members has succeeded, by this or by the host's communicator.
// The commit of a step is such an operation.
//
// Order of float sums: rank order per element. Every operation waits for the device before and after.
// REQUIRES: no work that writes the data is in flight on the device; the data is in registered memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "worker/fabric/async_communicator.h"
#include "worker/fabric/combine.h"
#include "worker/fabric/rma/group.h"

namespace ringmaster::fabric::rma {

// The work of the device, executed in the order of the calls. Not thread-safe.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;

  // The operands of all ranks. `own` is the operand of `rank`; `others` holds those of the other ranks, in
  // rank order, each as long as `own`.
  struct Operands {
    std::span<std::byte> own;
    std::span<const std::byte> others;
    int rank = 0;
    Combiner combiner;
  };
  // own = the combination of all operands in rank order.
  virtual void Combine(const Operands& operands) = 0;
  virtual void Copy(std::span<std::byte> to, std::span<const std::byte> from) = 0;
  // Waits until these calls, and all work given to the device before, are done.
  virtual Status Wait() = 0;
};

// `scratch` is registered memory for two halves of peers' operands: at least 64 bytes per peer and half.
// REQUIRES: `scratch` and `work` outlive the communicator.
std::unique_ptr<AsyncCommunicator> MakeCommunicator(std::unique_ptr<Group> group, DeviceWork* work,
                                                    std::span<std::byte> scratch);

}  // namespace ringmaster::fabric::rma
