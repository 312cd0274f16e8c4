// SPDX-License-Identifier: Apache-2.0

// Converts the parameters of a model to the tensors that Hugging Face's GPT-2 expects. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/weights/safetensors.h"
#include "worker/compute/engine/layout.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::cli {

// Returns every parameter of the layout without its padding, in reverse layout order (first layer first). The
// names and shapes of gpt parameters equal those of GPT-2: (in, out) matrices, fused query-key-value.
Result<std::vector<Tensor>> ExportTensors(const engine::Layout& layout, std::span<const float> params);

// Returns the config.json of the model.
Json Gpt2Config(const engine::ModelConfig& config);

}  // namespace ringmaster::cli
