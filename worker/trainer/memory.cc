// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/memory.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/file.h"
#include "worker/compute/numerics/exact.h"

namespace ringmaster::trainer {
namespace {

double Mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

std::string MemoryNeed::ToString() const {
  return fmt::format(
      "weights {:.1f} + optimizer {:.1f} + undo {:.1f} + gradients {:.1f} + activations {:.1f} + checkpoint "
      "copy {:.1f} = "
      "{:.1f} MiB",
      Mib(weights), Mib(optimizer), Mib(undo), Mib(gradients), Mib(activations), Mib(checkpoint),
      Mib(Total()));
}

MemoryNeed EstimateMemory(const RunConfig& config, const engine::Model& model, bool on_host,
                          bool writes_checkpoints) {
  const int64_t array = model.layout().elements * static_cast<int64_t>(sizeof(float));
  MemoryNeed need;
  need.weights = array;
  need.optimizer = array * optimizer::StateArrays(config.optimizer.kind);
  need.gradients = array * (config.wide_sums ? numerics::kMaxLimbs : 1);
  if (on_host) {
    need.undo = need.weights + need.optimizer;
    need.gradients += array;
    need.activations = model.ActivationBytes();
  }
  if (writes_checkpoints) need.checkpoint = need.weights + need.optimizer;
  return need;
}

Result<MemoryUsage> ParseMemoryUsage(const std::string& smaps_rollup) {
  const auto bytes = [&](const std::string& name) -> Result<int64_t> {
    const size_t at = smaps_rollup.find("\n" + name + ":");
    long long kib = 0;
    if (at == std::string::npos ||
        std::sscanf(smaps_rollup.c_str() + at + name.size() + 2, "%lld kB", &kib) != 1)
      return Error{Code::kUnavailable, "/proc/self/smaps_rollup has no " + name};
    return int64_t{kib} * 1024;
  };
  RM_ASSIGN(const int64_t anonymous, bytes("Pss_Anon"));
  RM_ASSIGN(const int64_t shared, bytes("Pss_Shmem"));
  RM_ASSIGN(const int64_t files, bytes("Pss_File"));
  return MemoryUsage{anonymous + shared, files};
}

Result<MemoryUsage> ReadMemoryUsage() {
  RM_ASSIGN(const std::string text, ReadFile("/proc/self/smaps_rollup", 1 << 16));
  return ParseMemoryUsage(text);
}

}  // namespace ringmaster::trainer
