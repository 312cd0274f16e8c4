// SPDX-License-Identifier: Apache-2.0

// The collectives of a GPU: NCCL's, if all members have NCCL and a separate GPU; or RMA gets
// (rma_collectives.h), if UCX is requested and supports them. Otherwise there are none, and gradients travel
// through the host.
//
// Not thread-safe: Connect runs on the trainer's main thread, to which the GPU is bound, and the communicator
// on the thread that reduces. REQUIRES: created while no other thread reads the environment, from which NCCL
// takes its settings.
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
  // `transport`: as in device::Options.
  static Result<std::unique_ptr<Collectives>> Create(const DeviceProperties& gpu, std::string_view transport);
  Collectives(OwnedStream stream, const fabric::nccl::Api& nccl);
  ~Collectives();

  // Returns zeroed memory for collectives, allocated by the library that suits them; freed with this object.
  // REQUIRES: no Connect before.
  Result<Arenas::Arena> Allocate(int64_t bytes);

  // As device::Device::Collectives.
  Result<std::unique_ptr<fabric::AsyncCommunicator>> Connect(fabric::Communicator* host,
                                                             const std::atomic<bool>* cancel);
  // Returns the stream of all operations.
  Stream stream() const { return stream_.get(); }
  // As device::Device::CollectivesTransport.
  std::string Transport();

 private:
  const OwnedStream stream_;
  Arenas arenas_;  // destroyed after the members that use its memory
  std::vector<std::span<std::byte>> memory_;
  std::unique_ptr<fabric::nccl::Domain> domain_;  // nullptr: UCX is requested
  std::unique_ptr<RmaCollectives> rma_;           // then set by the first Connect
};

}  // namespace ringmaster::cuda
