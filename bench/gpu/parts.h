// SPDX-License-Identifier: Apache-2.0

// The parts of a step of GPT-2, each on its own: how long its kernel takes at the step's shape, and the bytes
// and operations that it cannot do without. Attention is by whoever is chosen, and the other one stands
// beside it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "worker/compute/cuda/runtime/stream.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::bench {

struct Part {
  std::string name;
  int64_t calls = 0;        // in a step of one micro-batch
  std::string by;           // who does it, where there is a choice
  double milliseconds = 0;  // of one
  double bytes = 0;         // of one: read and written
  double flops = 0;         // of one, where operations bound it
  bool counted = true;      // else: not what a step does, but what it could do instead
};

// All but the matrix products and what is fused to them, whose times the model knows (engine::Model::Effort).
Result<std::vector<Part>> MeasureParts(cuda::Stream stream, const engine::ModelConfig& config,
                                       int64_t arena_elements);

}  // namespace ringmaster::bench
