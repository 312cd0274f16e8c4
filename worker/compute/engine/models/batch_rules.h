// SPDX-License-Identifier: Apache-2.0

// Validates batches: what a batch must look like for a model. Value type.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::engine {

struct BatchRules {
  explicit BatchRules(const ModelConfig& config);

  // Errors: kInvalid with the mismatch.
  Status Check(const Batch& batch, bool with_targets) const;

  int64_t max_samples = 0;
  bool of_tokens = false;
  int64_t inputs_per_sample = 0;  // tokens, or values of an image
  int64_t rows_per_sample = 0;    // predictions
  int64_t row_width = 0;          // logits per prediction; tokens and targets are below it
};

// Checks the shape of a model, without the limits of a device. Errors: kInvalid with the field and the
// reason.
Status CheckShape(const ModelConfig& config);

}  // namespace ringmaster::engine
