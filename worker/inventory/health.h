// SPDX-License-Identifier: Apache-2.0

// Judges what a machine has: what would make training fail, or run slowly without a word, each with what to
// do about it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "worker/inventory/inventory.h"

namespace ringmaster::inventory {

enum class Severity : uint8_t {
  kOk,
  kWarning,  // works; slower than it could be, or soon not any more
  kFailure,  // does not do what it is there for
};
const char* SeverityName(Severity severity);  // "ok", "warn", "FAIL"

struct Finding {
  Severity severity = Severity::kOk;
  std::string subject;  // "gpu 0", "rdma mlx5_0:1", "nccl"
  std::string what;
  std::string remedy;  // empty when it is good
  bool operator==(const Finding&) const = default;
};

// Something about each subject that is there.
std::vector<Finding> CheckHealth(const Inventory& inventory);

// The part about GPUs alone.
std::vector<Finding> CheckGpus(const Inventory& inventory);

bool Healthy(const std::vector<Finding>& findings);  // nothing bad
std::string HealthTable(const std::vector<Finding>& findings);
std::string HealthJson(const std::vector<Finding>& findings);

}  // namespace ringmaster::inventory
