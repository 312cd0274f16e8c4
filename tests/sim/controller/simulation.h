// SPDX-License-Identifier: Apache-2.0

// RunSeed: one simulated run with one to three jobs, a faulty world, the real controller and a checker.
// Deterministic by seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/sim/controller/mutations.h"

namespace ringmaster::sim {

struct RunResult {
  std::optional<std::string> breach;
  uint64_t decisions = 0;
  uint64_t crashes = 0;
  int64_t attempts = 0;
  int32_t restarts = 0;
  int succeeded = 0;  // jobs
  int failed = 0;
  Duration elapsed{0};  // virtual
};

RunResult RunSeed(uint64_t seed, Mutation mutation, bool trace);

}  // namespace ringmaster::sim
