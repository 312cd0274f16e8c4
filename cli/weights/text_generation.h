// SPDX-License-Identifier: Apache-2.0

// Text generation from a GPT: one token after the other, deterministic for a seed. Main thread only.
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
  double temperature = 0.8;  // 0 takes the likeliest token each time
  uint64_t seed = 1;
};

// Index drawn from softmax(logits / temperature) with `random` of 64 uniform bits. Pure.
int32_t DrawToken(std::span<const float> logits, double temperature, uint64_t random);

// A prompt as tokens: bytes, or with tokenizer "none" numbers apart by spaces. kInvalid when it is empty or a
// number is not below the vocabulary.
Result<std::vector<int32_t>> EncodePrompt(const std::string& prompt, const std::string& tokenizer,
                                          int vocabulary);

// Calls `emit` with each new token.
Status Generate(engine::Model& model, std::span<const float> params, std::vector<int32_t> prompt,
                const SampleOptions& options, const std::function<void(int32_t)>& emit);

}  // namespace ringmaster::cli
