// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/memory.h"

#include <fmt/format.h>

#include <algorithm>
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

Result<MemoryNeed> PredictMemory(const RunConfig& config, bool writes_checkpoints) {
  const auto with = [&](int layers, int samples) -> Result<MemoryNeed> {
    engine::ModelConfig model = config.model;
    model.layers = layers;
    model.max_samples = samples;
    RM_ASSIGN(const auto created, engine::CreateModel(model));
    return EstimateMemory(config, *created, true, writes_checkpoints);
  };
  const int layers = config.model.layers;
  const int samples = config.model.max_samples;
  const bool even = config.model.kind == engine::ModelKind::kGpt && layers > 2;
  const int one = even ? 1 : layers;
  const int one_sample = std::min(samples, 1);
  RM_ASSIGN(const MemoryNeed base, with(one, one_sample));
  RM_ASSIGN(const MemoryNeed taller, with(even ? 2 : one, one_sample));
  RM_ASSIGN(const MemoryNeed wider, with(one, std::min(samples, 2)));
  RM_ASSIGN(const MemoryNeed both, with(even ? 2 : one, std::min(samples, 2)));
  MemoryNeed need;
  for (int64_t MemoryNeed::*const part :
       {&MemoryNeed::weights, &MemoryNeed::optimizer, &MemoryNeed::undo, &MemoryNeed::gradients,
        &MemoryNeed::activations, &MemoryNeed::checkpoint}) {
    const int64_t of_layer = taller.*part - base.*part;
    const int64_t of_sample = wider.*part - base.*part;
    const int64_t of_both = both.*part - taller.*part - of_sample;
    const int64_t more_layers = layers - one;
    const int64_t more_samples = samples - one_sample;
    need.*part =
        base.*part + more_layers * of_layer + more_samples * of_sample + more_layers * more_samples * of_both;
  }
  return need;
}

Status CheckMemory(const MemoryNeed& need, int trainers, const MemoryLimits& limits) {
  constexpr const char* kRemedy =
      "give it more memory, use fewer workers, a smaller model, or more microBatches (fewer samples at once)";
  const int64_t sum = need.Total() * trainers;
  if (limits.total > 0 && sum > limits.total)
    return Error{
        Code::kExhausted,
        fmt::format("the job does not fit into memory: {}{}{} are needed and there are {:.1f} MiB; {}",
                    trainers > 1 ? fmt::format("{} workers x (", trainers) : "", need.ToString(),
                    trainers > 1 ? fmt::format(") = {:.1f} MiB", Mib(sum)) : "", Mib(limits.total), kRemedy)};
  if (limits.available > 0 && need.Total() > limits.available)
    return Error{
        Code::kExhausted,
        fmt::format("the job does not fit into memory: {} are needed and {:.1f} MiB are available; {}",
                    need.ToString(), Mib(limits.available), kRemedy)};
  return Ok();
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
