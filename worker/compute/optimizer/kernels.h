// SPDX-License-Identifier: Apache-2.0

// The inner loops of the optimizers, compiled once per instruction set (engine/cpu_variants.h). Internal to
// optimizer, its tests and the CUDA kernels. The tests run every variant that this CPU supports and compare
// the bits with the reference.
//
// Kernels run in the scope of a KeepSubnormals (base/subnormals.h): trainers flush subnormals elsewhere.
//
// Element i of the outputs depends only on element i of the inputs. An output may be the same memory as
// its input but must not overlap it partly. Thread-safe: the kernels have no state.
#pragma once

#include <cstdint>
#include <span>

#include "worker/compute/optimizer/optimizer.h"

namespace ringmaster::optimizer {

// The scalars of a step, the same for all elements: computed in double, each rounded to float once.
struct SgdScalars {
  float gradient_scale = 1;
  float weight_decay = 0;  // 0 without decay
  float momentum = 0;
  float negative_rate = 0;
};

struct AdamWScalars {
  float gradient_scale = 1;
  float keep = 1;  // 1 - rate * weight_decay; 1 without decay
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float inverse_root = 1;  // 1 / sqrt(1 - beta2^step)
  float epsilon = 0;
  float negative_size = 0;  // -rate / (1 - beta1^step)
};

// A result below it is stored as zero. Otherwise the moments of a row that is never updated would decay into
// subnormals and remain there, and arithmetic on them takes CPUs a hundred times as long.
inline constexpr float kSmallestNormal = 0x1p-126F;

SgdScalars MakeSgd(const Config& config, const StepScalars& scalars, bool decay);
AdamWScalars MakeAdamW(const Config& config, const StepScalars& scalars, bool decay);

struct Kernels {
  const char* name;
  void (*sgd)(const SgdScalars& s, const Slices& slices);
  void (*adamw)(const AdamWScalars& s, const Slices& slices);
};

// Returns the variants that this CPU supports, fastest first; the last one is plain C++.
std::span<const Kernels> AvailableKernels();

}  // namespace ringmaster::optimizer
