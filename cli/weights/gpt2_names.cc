// SPDX-License-Identifier: Apache-2.0

#include "cli/weights/gpt2_names.h"

#include <fmt/format.h>

namespace ringmaster::cli {

Result<std::vector<Tensor>> ExportTensors(const engine::Layout& layout, std::span<const float> params) {
  std::vector<Tensor> tensors;
  for (auto parameter = layout.parameters.rbegin(); parameter != layout.parameters.rend(); ++parameter) {
    if (parameter->offset + parameter->size > static_cast<int64_t>(params.size()))
      return Error{Code::kCorrupt, fmt::format("{} is outside of the weights", parameter->name)};
    tensors.push_back(
        {parameter->name, parameter->shape,
         params.subspan(static_cast<size_t>(parameter->offset), static_cast<size_t>(parameter->size))});
  }
  return tensors;
}

Json Gpt2Config(const engine::ModelConfig& config) {
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"vocab_size", config.vocabulary},
          {"n_positions", config.context},
          {"n_embd", config.width},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", 1e-5},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"tie_word_embeddings", true},
          // The data of a run has no token with this meaning that is known here: generation ends by length.
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

}  // namespace ringmaster::cli
