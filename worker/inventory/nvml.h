// SPDX-License-Identifier: Apache-2.0

// NVIDIA's management library, loaded when it is there: no build or machine needs it. The few declarations
// used are its stable, documented C interface. Answers are those of this moment; what a GPU, a driver or a
// container does not report is left out.
//
// Any thread; the library does its own locking.
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

class Nvml {
  struct Private {};

 public:
  // kNotFound: not installed (no driver, or the container was given no GPU); kInvalid: not the library, too
  // old, or without a driver behind it.
  static Result<std::unique_ptr<Nvml>> Open(const std::string& library);
  explicit Nvml(Private);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string Driver() const;
  // Without pci's neighbourhood. `notes` gets those that do not answer.
  std::vector<Gpu> Gpus(std::vector<std::string>* notes) const;

  // The driver's critical errors (XID) of these GPUs, from now on. False where it does not report.
  bool WatchErrors(const std::vector<Gpu>& gpus);
  struct DeviceError {
    std::string uuid;
    uint64_t xid = 0;
  };
  // The next one, if one comes in time; all of that is waited for when not, also for a GPU that is lost.
  std::optional<DeviceError> NextError(Duration timeout) const;

 private:
  struct Table;
  std::unique_ptr<Table> table_;
};

// What an XID means and what to do, in a few words: "79: the GPU has fallen off the bus: ...".
std::string DescribeXid(uint64_t xid);

}  // namespace ringmaster::inventory
