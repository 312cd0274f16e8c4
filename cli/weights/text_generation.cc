// SPDX-License-Identifier: Apache-2.0

#include "cli/weights/text_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "base/rng.h"

namespace ringmaster::cli {

int32_t DrawToken(std::span<const float> logits, double temperature, uint64_t random) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<double> weights(logits.size());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    total += weights[i] =
        std::exp((static_cast<double>(logits[i]) - static_cast<double>(*best)) / temperature);
  double left = static_cast<double>(random >> 11) * 0x1.0p-53 * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(best - logits.begin());  // `left` stayed positive by rounding
}

Result<std::vector<int32_t>> EncodePrompt(const std::string& prompt, const std::string& tokenizer,
                                          int vocabulary) {
  std::vector<int32_t> tokens;
  if (tokenizer == "bytes") {
    for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  } else {
    std::istringstream words(prompt);
    for (std::string word; words >> word;) {
      int32_t token = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
      if (error != std::errc() || end != word.data() + word.size())
        return Error{Code::kInvalid, "--prompt: this model was trained on token numbers; '" + word +
                                         "' is not a number. Separate the numbers by spaces"};
      tokens.push_back(token);
    }
  }
  if (tokens.empty()) return Error{Code::kInvalid, "--prompt: give at least one token"};
  for (const int32_t token : tokens)
    if (token < 0 || token >= vocabulary)
      return Error{
          Code::kInvalid,
          fmt::format("--prompt: token {} is outside of the model's vocabulary of {}", token, vocabulary)};
  return tokens;
}

Status Generate(engine::Model& model, std::span<const float> params, std::vector<int32_t> prompt,
                const SampleOptions& options, const std::function<void(int32_t)>& emit) {
  const auto context = static_cast<size_t>(model.config().context);
  const auto vocabulary = static_cast<size_t>(model.config().vocabulary);
  std::vector<int32_t> history = std::move(prompt);
  const std::vector<int32_t> no_targets(context, 0);
  for (int64_t i = 0; i < options.tokens; ++i) {
    const size_t used = std::min(history.size(), context);
    std::vector<int32_t> window(context, 0);  // attention is causal: positions from `used` on have no effect
    std::copy(history.end() - static_cast<std::ptrdiff_t>(used), history.end(), window.begin());
    engine::Batch batch;
    batch.samples = 1;
    batch.tokens = window;
    batch.targets = no_targets;
    RM_ASSIGN(const std::span<const float> logits, model.Logits(params, batch));
    const int32_t token = DrawToken(logits.subspan((used - 1) * vocabulary, vocabulary), options.temperature,
                                    KeyedRandom(options.seed, static_cast<uint64_t>(i)));
    history.push_back(token);
    emit(token);
  }
  return Ok();
}

}  // namespace ringmaster::cli
