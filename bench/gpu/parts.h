// SPDX-License-Identifier: Apache-2.0

// Measures each part of a GPT-2 step separately: the time of its kernel at the shape of the step, and the
// bytes and operations that it needs at least. Of the two implementations of attention, the chosen one counts
// and the other is listed for comparison.
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
  std::string by;           // the implementation, where there is a choice
  double milliseconds = 0;  // of one
  double bytes = 0;         // of one: read and written
  double flops = 0;         // of one, where operations bound it
  bool counted = true;      // false: an alternative that the step does not use
};

// Measures everything except the matrix products and the operations fused with them, whose times the model
// reports (engine::Model::MatmulCosts).
Result<std::vector<Part>> MeasureParts(cuda::Stream stream, const engine::ModelConfig& config,
                                       int64_t arena_elements);

}  // namespace ringmaster::bench
