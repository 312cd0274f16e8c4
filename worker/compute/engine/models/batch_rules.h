// SPDX-License-Identifier: Apache-2.0

// What a batch must look like for a model, and the refusal when it does not. Value type.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::engine {

struct BatchRules {
  explicit BatchRules(const ModelConfig& config);

  // kInvalid with what does not fit.
  Status Check(const Batch& batch, bool with_targets) const;

  int64_t max_samples = 0;
  bool of_tokens = false;
  int64_t inputs_per_sample = 0;  // tokens, or numbers of an image
  int64_t rows_per_sample = 0;    // predictions
  int64_t row_width = 0;          // logits of a prediction; also what tokens and targets are below
};

// kInvalid when a model cannot be of this shape, with field and reason. What a device can do is its own
// matter.
Status CheckShape(const ModelConfig& config);

}  // namespace ringmaster::engine
