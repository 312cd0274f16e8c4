// SPDX-License-Identifier: Apache-2.0

// The collectives of GPUs that UCX carries: peers read each other's memory (worker/fabric/rma), and kernels
// of ours add.
//
// Thread rule: as Collectives.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"
#include "worker/fabric/async_communicator.h"
#include "worker/fabric/communicator.h"
#include "worker/fabric/rma/communicator.h"
#include "worker/fabric/rma/domain.h"

namespace ringmaster::cuda {

class RmaCollectives {
 public:
  // `memory` is what will be reduced or gathered; `host_id` is equal where members see each other's GPUs.
  // Takes memory of the device for what is read; without it the members are told that there are none here.
  static std::unique_ptr<RmaCollectives> Create(Stream stream, const std::string& host_id,
                                                const std::vector<std::span<std::byte>>& memory);

  // As Collectives::Connect.
  Result<std::unique_ptr<fabric::AsyncCommunicator>> Connect(fabric::Communicator* host,
                                                             const std::atomic<bool>* cancel);
  const std::string& transport() const { return domain_->transport(); }

 private:
  class Work final : public fabric::rma::DeviceWork {
   public:
    explicit Work(Stream stream) : stream_(stream) {}
    void Combine(const Operands& operands) override;
    void Copy(std::span<std::byte> to, std::span<const std::byte> from) override;
    Status Wait() override { return Synchronize(stream_); }

   private:
    const Stream stream_;
  };

  explicit RmaCollectives(Stream stream) : work_(stream) {}

  Work work_;
  Buffer<std::byte> scratch_;
  std::unique_ptr<fabric::rma::Domain> domain_;
};

}  // namespace ringmaster::cuda
