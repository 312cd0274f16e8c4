// SPDX-License-Identifier: Apache-2.0

// The collectives of a GPU: NCCL's, where all members have it and a GPU of their own; or, when UCX is asked
// for, reads of peers' memory (rma.h), where UCX can do that. Else there are none, and gradients travel
// through the host.
//
// Thread rule: Connect on the trainer's main thread, to which the GPU is bound; the communicator on the one
// that reduces. LoadHandle while no other thread uses the environment: NCCL takes its settings from there.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "worker/compute/cuda/arenas.h"
#include "worker/compute/cuda/runtime/device_properties.h"
#include "worker/compute/cuda/runtime/stream.h"
#include "worker/fabric/async_communicator.h"
#include "worker/fabric/communicator.h"

namespace ringmaster::fabric::nccl {
class Domain;
}

namespace ringmaster::cuda {

class RmaCollectives;

class Collectives {
 public:
  // `transport` as device::Options.
  static Result<std::unique_ptr<Collectives>> Create(const DeviceProperties& gpu, std::string_view transport);
  Collectives(OwnedStream stream, const fabric::nccl::Api& nccl);
  ~Collectives();

  // Zeroed memory that will be reduced or gathered, of the kind that suits what does it; freed with this.
  // Before the first Connect.
  Result<Arenas::Arena> Allocate(int64_t bytes);

  // As device::Device::Collectives.
  Result<std::unique_ptr<fabric::AsyncCommunicator>> Connect(fabric::Communicator* host,
                                                             const std::atomic<bool>* cancel);
  // What operations are given to.
  Stream stream() const { return stream_.get(); }
  // As device::Device::CollectivesTransport.
  std::string Transport();

 private:
  const OwnedStream stream_;
  Arenas arenas_;  // goes after those who know the memory
  std::vector<std::span<std::byte>> memory_;
  std::unique_ptr<fabric::nccl::Domain> domain_;  // nullptr: UCX is asked for
  std::unique_ptr<RmaCollectives> rma_;           // then, from the first Connect on
};

}  // namespace ringmaster::cuda
