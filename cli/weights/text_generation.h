// SPDX-License-Identifier: Apache-2.0

// Autoregressive text generation with a GPT, deterministic for a seed. Main thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::cli {

struct SampleOptions {
  int64_t tokens = 200;
  double temperature = 0.8;  // 0: greedy
  uint64_t seed = 1;
};

// Draws an index from softmax(logits / temperature) with 64 uniform random bits. Shape of logits: (V). Pure.
int32_t DrawToken(std::span<const float> logits, double temperature, uint64_t random);

// Converts a prompt to tokens: its bytes, or, with tokenizer "none", numbers separated by spaces. Errors:
// kInvalid when the prompt is empty or a number is outside of the vocabulary.
Result<std::vector<int32_t>> EncodePrompt(const std::string& prompt, const std::string& tokenizer,
                                          int vocabulary);

// Generates options.tokens tokens after the prompt and calls `emit` with each.
Status Generate(engine::Model& model, std::span<const float> params, std::vector<int32_t> prompt,
                const SampleOptions& options, const std::function<void(int32_t)>& emit);

}  // namespace ringmaster::cli
