// SPDX-License-Identifier: Apache-2.0

// Collectives by pulls in a member process, on memory of the host: what a GPU does is done by plain loops.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "tests/unit/fabric/processes.h"
#include "worker/fabric/rma/domain.h"

namespace ringmaster::fabric::testing {

// Does everything only when it is waited for, as a device may.
class LateWork final : public rma::DeviceWork {
 public:
  void Combine(const Operands& operands) override;
  void Copy(std::span<std::byte> to, std::span<const std::byte> from) override;
  Status Wait() override;

 private:
  std::vector<std::function<void()>> given_;
};

class RmaMember {
 public:
  // `memory`: what collectives will work on.
  RmaMember(std::span<std::byte> memory, size_t scratch_bytes, Duration timeout);

  // Over `host`, which stays with the communicator.
  Result<std::unique_ptr<Communicator>> Connect(std::unique_ptr<Communicator> host,
                                                const std::atomic<bool>* cancel);
  const std::string& transport() const { return domain_->transport(); }

 private:
  std::vector<std::byte> scratch_;
  LateWork work_;
  std::unique_ptr<rma::Domain> domain_;
};

}  // namespace ringmaster::fabric::testing
