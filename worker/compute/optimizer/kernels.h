// SPDX-License-Identifier: Apache-2.0

// The inner loops of the optimizers, once per instruction set. Private to optimizer and its tests: the tests
// run every variant this CPU has and demand the reference's bits.
//
// Element i of the outputs depends on element i of the inputs alone. An output may be the same memory as its
// own input, never partly overlapping. No state, no thread rules.
#pragma once

#include <cstdint>
#include <span>

#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::optimizer {

// The numbers of a step as the elements see them: computed in double, each rounded to float once.
struct SgdScalars {
  float gradient_scale = 1;
  float weight_decay = 0;  // 0 where decay does not apply
  float momentum = 0;
  float negative_rate = 0;
};

struct AdamWScalars {
  float gradient_scale = 1;
  float keep = 1;  // 1 - rate * weight_decay; 1 where decay does not apply
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float inverse_root = 1;  // 1 / sqrt(1 - beta2^step)
  float epsilon = 0;
  float negative_size = 0;  // -rate / (1 - beta1^step)
};

SgdScalars MakeSgd(const Config& config, const StepScalars& scalars, bool decay);
AdamWScalars MakeAdamW(const Config& config, const StepScalars& scalars, bool decay);

struct Kernels {
  const char* name;
  void (*sgd)(const SgdScalars& s, const Slices& slices);
  void (*adamw)(const AdamWScalars& s, const Slices& slices);
};

// What this CPU can run, fastest first; the last one is plain and always there.
std::span<const Kernels> AvailableKernels();

}  // namespace ringmaster::optimizer
