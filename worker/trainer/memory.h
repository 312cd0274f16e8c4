// SPDX-License-Identifier: Apache-2.0

// How much memory a trainer needs, by arithmetic, and how much it has, by the kernel's count. Pure, and a
// reader of /proc.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "worker/compute/engine/model.h"
#include "worker/trainer/run_config.h"

namespace ringmaster::trainer {

// Bytes of one trainer: state counts twice, since the undo image is as large as the current one.
struct MemoryNeed {
  int64_t weights = 0;
  int64_t optimizer = 0;
  int64_t undo = 0;
  int64_t gradients = 0;  // of one micro-batch, and the sum over micro-batches
  int64_t activations = 0;
  int64_t checkpoint = 0;  // the copy that is being written, on the member that writes
  int64_t Total() const { return weights + optimizer + undo + gradients + activations + checkpoint; }
  std::string ToString() const;  // "weights 3.2 MiB + optimizer 6.4 MiB + ... = 21.0 MiB"
};

// Of the host's memory; with a device of its own that is the mirror of the state and the sums on their way.
MemoryNeed EstimateMemory(const RunConfig& config, const engine::Model& model, bool on_host,
                          bool writes_checkpoints);

// What this process holds; pages shared with peers count in shares.
struct MemoryUsage {
  int64_t own = 0;    // anonymous and shared memory: nobody but its end gives it back
  int64_t files = 0;  // pages of programs and data that are mapped: the kernel drops them when it needs room
};

// From the text of /proc/PID/smaps_rollup. kUnavailable where the kernel does not tell (before 5.9).
Result<MemoryUsage> ParseMemoryUsage(const std::string& smaps_rollup);
// Of this process.
Result<MemoryUsage> ReadMemoryUsage();

}  // namespace ringmaster::trainer
