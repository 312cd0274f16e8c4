#include "worker/trainer/memory.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/file.h"

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

MemoryNeed NeedOf(const RunConfig& config, const engine::Model& model, bool writes_checkpoints) {
  const int64_t array = model.layout().elements * static_cast<int64_t>(sizeof(float));
  MemoryNeed need;
  need.weights = array;
  need.optimizer = array * optimizer::StateArrays(config.optimizer.kind);
  need.undo = need.weights + need.optimizer;
  need.gradients = 2 * array;
  need.activations = model.ActivationBytes();
  if (writes_checkpoints) need.checkpoint = need.weights + need.optimizer;
  return need;
}

Result<int64_t> ProportionalBytes() {
  RM_ASSIGN(const std::string text, ReadFile("/proc/self/smaps_rollup", 1 << 16));
  const size_t at = text.find("\nPss:");
  long long kib = 0;
  if (at == std::string::npos || std::sscanf(text.c_str() + at, "\nPss: %lld kB", &kib) != 1) {
    return Error{Code::kUnavailable, "/proc/self/smaps_rollup has no Pss"};
  }
  return int64_t{kib} * 1024;
}

}  // namespace ringmaster::trainer
