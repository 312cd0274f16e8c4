// SPDX-License-Identifier: Apache-2.0

// Optimizers over the arena of engine::Layout: next = f(current, gradient), element by element, from one
// buffer into another. A step is committed by swapping the two buffers, so the old buffer is the undo of the
// step at no extra memory traffic. reference.cc has the formulas and their source.
//
// Thread-safe: pure arithmetic without state. FMA contraction is disabled, so any partition of the range over
// any number of threads gives the same bits. All functions compute with subnormals, even on a thread that
// flushes them (base/subnormals.h), and store none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "worker/compute/engine/layout.h"

namespace ringmaster::optimizer {

enum class Kind : uint8_t { kSgd, kAdamW };

struct Config {
  Kind kind = Kind::kAdamW;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // For parameters with Parameter::decay. AdamW: decoupled decay; SGD: added to the gradient.
  double weight_decay = 0;
  double clip_norm = 0;  // 0: no clipping
  bool operator==(const Config&) const = default;
};

// Returns the kind that a manifest calls `name` ("sgd", "adamw"); nullopt: none.
std::optional<Kind> KindNamed(std::string_view name);

// Returns the names of the state arrays in checkpoints, in the order of Slices: one for SGD, two for AdamW.
std::span<const std::string_view> StateNames(Kind kind);
inline int StateArrays(Kind kind) { return static_cast<int>(StateNames(kind).size()); }

// The scalars of one step. `step` counts from 1 (bias correction).
struct StepScalars {
  int64_t step = 1;
  double learning_rate = 0;
  double gradient_scale = 1;  // the clip factor
};

// Returns min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does; 1 without clipping.
double ClipFactor(double clip_norm, double norm);

// The same range of every array. Shape of each: (N).
struct Slices {
  std::span<const float> gradient;
  std::span<const float> params;
  std::span<const float> state0;
  std::span<const float> state1;  // empty for SGD
  std::span<float> next_params;
  std::span<float> next_state0;
  std::span<float> next_state1;
};

// Runs one step over a range whose elements share the decay flag.
void Step(const Config& config, const StepScalars& scalars, bool decay, const Slices& slices);
void StepReference(const Config& config, const StepScalars& scalars, bool decay, const Slices& slices);

// Where a step stores the hashes of the arrays that it writes, one per chunk (base/hash.h). Empty spans: the
// arrays are not hashed.
struct ChunkHashes {
  std::span<uint64_t> params;
  std::span<uint64_t> state0;
  std::span<uint64_t> state1;  // empty for SGD
};

// Runs one step over the whole arena with up to `threads` threads. Padding stays zero. Each chunk is hashed
// right after it is written, while it is in a cache.
void StepAll(const Config& config, const StepScalars& scalars, const engine::Layout& layout,
             const Slices& slices, int threads, const ChunkHashes& hashes = {});

enum class ScheduleKind : uint8_t { kConstant, kLinear, kCosine };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double base = 0;
  double final = 0;          // rate of linear and cosine at total_steps
  int64_t warmup_steps = 0;  // the rate grows linearly from 0 to `base` at this step
  int64_t total_steps = 0;
  // Returns the learning rate of `step`, which counts from 1.
  double At(int64_t step) const;
};

}  // namespace ringmaster::optimizer
