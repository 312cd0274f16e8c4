// SPDX-License-Identifier: Apache-2.0

// The collectives of GPUs over UCX: peers read each other's memory (worker/fabric/rma), and our kernels sum.
//
// Not thread-safe: the thread rule is that of Collectives.
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
  // `memory` is all memory of collectives; `host_id` is equal for members whose GPUs may have peer access.
  // Allocates scratch memory on the device. If that fails, the other members learn that RMA is not supported
  // here.
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
