// SPDX-License-Identifier: Apache-2.0

// From our parameters to the tensors that Hugging Face's GPT-2 expects. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/weights/safetensors.h"
#include "worker/compute/engine/layout.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::cli {

// Every parameter of the layout without its padding, in layout order reversed (first layer first). The names
// and shapes of gpt parameters are those of GPT-2 already: [in, out] matrices, fused query-key-value.
Result<std::vector<Tensor>> ExportTensors(const engine::Layout& layout, std::span<const float> params);

// config.json of the same model.
Json Gpt2Config(const engine::ModelConfig& config);

}  // namespace ringmaster::cli
