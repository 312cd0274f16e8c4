// SPDX-License-Identifier: Apache-2.0

// Optimizers over arenas: next = f(current, gradient), element by element, from one buffer into another. The
// untouched current buffer is the one-step undo, at no extra memory traffic: a step is committed by swapping
// roles.
//
// Pure arithmetic, no state of its own, no FMA contraction: any cut of the range and any thread gives the
// same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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
  double weight_decay = 0;  // only where Parameter::decay. AdamW: decoupled; SGD: added to the gradient
  double clip_norm = 0;     // 0: none
  bool operator==(const Config&) const = default;
};

// State arrays beside the parameters: 1 for SGD (momentum), 2 for AdamW (m, v).
int StateArrays(Kind kind);

// What varies from step to step. step counts from 1 (bias correction).
struct StepScalars {
  int64_t step = 1;
  double learning_rate = 0;
  double gradient_scale = 1;  // the clip factor
};

// min(1, clip_norm / norm); 1 when clipping is off. PyTorch's formula with its 1e-6.
double ClipFactor(double clip_norm, double norm);

struct Slices {  // equal lengths; element i of all belongs together
  std::span<const float> gradient;
  std::span<const float> params;
  std::span<const float> state0;
  std::span<const float> state1;  // empty for SGD
  std::span<float> next_params;
  std::span<float> next_state0;
  std::span<float> next_state1;
};

// One step over a range whose elements share the decay flag.
void Step(const Config& config, const StepScalars& scalars, bool decay, const Slices& slices);
void StepReference(const Config& config, const StepScalars& scalars, bool decay, const Slices& slices);

// Whole arena by the layout, cut into pieces for `threads` threads. Padding stays zero.
void StepAll(const Config& config, const StepScalars& scalars, const engine::Layout& layout,
             const Slices& slices, int threads);

enum class ScheduleKind : uint8_t { kConstant, kLinear, kCosine };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double base = 0;
  double final = 0;          // linear and cosine end here at total_steps
  int64_t warmup_steps = 0;  // linear from 0; step w has the full rate
  int64_t total_steps = 0;
  double At(int64_t step) const;  // step counts from 1
};

}  // namespace ringmaster::optimizer
