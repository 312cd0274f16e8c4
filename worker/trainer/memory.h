// SPDX-License-Identifier: Apache-2.0

// The memory that a trainer needs, by arithmetic, and the memory it uses, as counted by the kernel.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "worker/compute/engine/model.h"
#include "worker/trainer/run_config.h"

namespace ringmaster::trainer {

// Bytes needed by one trainer.
struct MemoryNeed {
  int64_t weights = 0;
  int64_t optimizer = 0;
  int64_t undo = 0;       // the undo image is as large as the current one
  int64_t gradients = 0;  // of one micro-batch, and the sum over micro-batches
  int64_t activations = 0;
  int64_t checkpoint = 0;  // the copy being written, on the member that writes
  int64_t Total() const { return weights + optimizer + undo + gradients + activations + checkpoint; }
  std::string ToString() const;  // "weights 3.2 MiB + optimizer 6.4 MiB + ... = 21.0 MiB"
};

// Estimates the host memory. With a separate device, the host holds only a mirror of the state and the sums
// in transit.
MemoryNeed EstimateMemory(const RunConfig& config, const engine::Model& model, bool on_host,
                          bool writes_checkpoints);

// Predicts the same without allocating it: from models of one and two layers and samples, since a gpt model
// grows evenly with both. Of a trainer on the CPU. Errors: as engine::CreateModel.
Result<MemoryNeed> PredictMemory(const RunConfig& config, bool writes_checkpoints);

struct MemoryLimits {
  int64_t total = 0;      // of the machine or the container; 0: unknown
  int64_t available = 0;  // now, to this process; 0: unknown
};

// Returns kExhausted, with the sum and the remedy, if `trainers` trainers cannot fit into the total, or if
// what is available is too little for one. The kernel would kill one of them without a word.
Status CheckMemory(const MemoryNeed& need, int trainers, const MemoryLimits& limits);

// Memory used by this process. Pages shared with other processes count proportionally (PSS).
struct MemoryUsage {
  int64_t own = 0;    // anonymous and shared memory: not reclaimable
  int64_t files = 0;  // mapped pages of programs and data, which the kernel can reclaim
};

// Parses the text of /proc/PID/smaps_rollup. Errors: kUnavailable when the kernel does not report it (before
// 5.9).
Result<MemoryUsage> ParseMemoryUsage(const std::string& smaps_rollup);
// Reads the usage of this process.
Result<MemoryUsage> ReadMemoryUsage();

}  // namespace ringmaster::trainer
