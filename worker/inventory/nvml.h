// SPDX-License-Identifier: Apache-2.0

// NVIDIA's management library (NVML), loaded at run time where it is installed; the build does not need it.
// Its stable C interface is declared in nvml_abi.h. Results are current values; what the GPU, the driver or
// the container does not report is left out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "worker/inventory/inventory.h"

namespace ringmaster::inventory {

// Thread-safe: NVML does its own locking.
class Nvml {
  struct Private {};

 public:
  // Errors: kNotFound when it is not installed (no driver, or a container without a GPU), kInvalid when it is
  // another library, too old, or without a driver.
  static Result<std::unique_ptr<Nvml>> Open(const std::string& library);
  explicit Nvml(Private);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string Driver() const;
  // Returns the GPUs without their PCI locations. Adds a note for each GPU that does not answer.
  std::vector<Gpu> Gpus(std::vector<std::string>* notes) const;

  // Subscribes to the driver's critical errors (XID) of these GPUs. Returns false when NVML cannot report
  // them.
  bool WatchErrors(const std::vector<Gpu>& gpus);
  struct DeviceError {
    std::string uuid;
    uint64_t xid = 0;
  };
  // Returns the next error, or nullopt after `timeout`. Waits that long also when a GPU is lost.
  std::optional<DeviceError> NextError(Duration timeout) const;

 private:
  struct Table;
  std::unique_ptr<Table> table_;
};

// Returns what an XID means and what to do: "79: the GPU has fallen off the bus: ...".
std::string DescribeXid(uint64_t xid);

}  // namespace ringmaster::inventory
