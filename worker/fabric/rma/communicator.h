// SPDX-License-Identifier: Apache-2.0

// Collectives on memory of GPUs, made of pulls: everybody shows where its data lies and reads what it needs
// of the others; sums are made by the device. Large all-reduces go in two rounds, as on the host: each member
// sums the share it owns, then reads the shares of the others where they were summed.
//
// Of a member that gives the generation up or dies, others may read garbage and not know: nothing stops it
// from using its memory again, and that of a dead process on the same machine may still be there to be read.
// An operation may then succeed, but none after it can, as each needs that member. So a result counts once
// any later operation with it, by this or the host's communicator, has succeeded; the commit of a step does.
//
// Order of float sums: rank order per element. Every operation waits for the device before and after; it must
// have nothing under way that writes the data. Data lies in registered memory.
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

// What the device does for that, in the order in which it is told. One thread at a time.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;

  // own = the operands of all ranks, summed (or compared) in rank order: `own` that of `rank`, the others one
  // behind the other in `others`, each of own's length.
  struct Operands {
    std::span<std::byte> own;
    std::span<const std::byte> others;
    int rank = 0;
    Combiner combiner;
  };
  virtual void Combine(const Operands& operands) = 0;
  virtual void Copy(std::span<std::byte> to, std::span<const std::byte> from) = 0;
  // WaitUntil all of that, and what the device was given before, is done.
  virtual Status Wait() = 0;
};

// `scratch` is registered memory for two halves of peers' operands, at least 64 bytes for each of the others
// and half; it and `work` outlive the communicator.
std::unique_ptr<AsyncCommunicator> MakeCommunicator(std::unique_ptr<Group> group, DeviceWork* work,
                                                    std::span<std::byte> scratch);

}  // namespace ringmaster::fabric::rma
