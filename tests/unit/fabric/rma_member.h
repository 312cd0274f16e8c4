// SPDX-License-Identifier: Apache-2.0

// RMA collectives in a member process, on memory of the host: plain loops do the work of the GPU.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "tests/unit/fabric/processes.h"
#include "worker/fabric/rma/domain.h"

namespace ringmaster::fabric::testing {

// Executes all work in Wait, as a device may.
class DeferredWork final : public rma::DeviceWork {
 public:
  void Combine(const Operands& operands) override;
  void Copy(std::span<std::byte> to, std::span<const std::byte> from) override;
  Status Wait() override;

 private:
  std::vector<std::function<void()>> deferred_;
};

class RmaMember {
 public:
  // `memory`: of the collectives.
  RmaMember(std::span<std::byte> memory, size_t scratch_bytes, Duration timeout);

  // Creates a communicator over `host`, which it owns.
  Result<std::unique_ptr<Communicator>> Connect(std::unique_ptr<Communicator> host,
                                                const std::atomic<bool>* cancel);
  const std::string& transport() const { return domain_->transport(); }

 private:
  std::vector<std::byte> scratch_;
  DeferredWork work_;
  std::unique_ptr<rma::Domain> domain_;
};

}  // namespace ringmaster::fabric::testing
