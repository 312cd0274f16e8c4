// SPDX-License-Identifier: Apache-2.0

// Checks an Inventory for conditions that make training fail, or run slowly without a message. Each finding
// says what to do about it. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "worker/inventory/inventory.h"

namespace ringmaster::inventory {

enum class Severity : uint8_t {
  kOk,
  kWarning,  // works, but slower than possible, or not for much longer
  kFailure,  // does not work
};
const char* SeverityName(Severity severity);  // "ok", "warn", "FAIL"

struct Finding {
  Severity severity = Severity::kOk;
  std::string subject;  // "gpu 0", "rdma mlx5_0:1", "nccl"
  std::string what;
  std::string remedy;  // empty for kOk
  bool operator==(const Finding&) const = default;
};

// Returns at least one finding about each subject in the inventory.
std::vector<Finding> CheckHealth(const Inventory& inventory);

// Returns the findings about GPUs only.
std::vector<Finding> CheckGpus(const Inventory& inventory);

bool Healthy(const std::vector<Finding>& findings);  // no kFailure
std::string HealthTable(const std::vector<Finding>& findings);
std::string HealthJson(const std::vector<Finding>& findings);

}  // namespace ringmaster::inventory
