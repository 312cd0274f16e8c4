// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/models/batch_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "worker/compute/engine/models/tensors.h"

namespace ringmaster::engine {
namespace {

constexpr int64_t kLargestExtent = 1 << 20;

Status AtLeastOne(const char* field, int value) {
  if (value < 1) return Error{Code::kInvalid, fmt::format("{}: must be at least 1 (got {})", field, value)};
  if (value > kLargestExtent)
    return Error{Code::kInvalid,
                 fmt::format("{}: must be at most {} (got {})", field, kLargestExtent, value)};
  return Ok();
}

}  // namespace

BatchRules::BatchRules(const ModelConfig& config)
    : max_samples(config.max_samples),
      of_tokens(config.kind == ModelKind::kGpt),
      inputs_per_sample(of_tokens ? config.context : ImageSize(config)),
      rows_per_sample(of_tokens ? config.context : 1),
      row_width(of_tokens ? config.vocabulary : config.classes) {}

Status BatchRules::Check(const Batch& batch, bool with_targets) const {
  if (batch.samples < 0 || batch.samples > max_samples)
    return Error{Code::kInvalid,
                 fmt::format("batch of {} samples: the model takes at most {}", batch.samples, max_samples)};
  const auto inputs = static_cast<size_t>(batch.samples * inputs_per_sample);
  const size_t given = of_tokens ? batch.tokens.size() : batch.images.size();
  if (given != inputs)
    return Error{Code::kInvalid, fmt::format("batch of {} samples needs {} {}, got {}", batch.samples, inputs,
                                             of_tokens ? "tokens" : "image values", given)};
  if (of_tokens)
    for (const int32_t token : batch.tokens)
      if (token < 0 || token >= row_width)
        return Error{Code::kInvalid,
                     fmt::format("token {} is outside the vocabulary of {}", token, row_width)};
  if (!with_targets) return Ok();
  if (batch.targets.size() != static_cast<size_t>(batch.samples * rows_per_sample))
    return Error{Code::kInvalid, fmt::format("batch of {} samples needs {} targets, got {}", batch.samples,
                                             batch.samples * rows_per_sample, batch.targets.size())};
  for (const int32_t target : batch.targets)
    if (target >= row_width)
      return Error{Code::kInvalid, fmt::format("target {} is not below {}", target, row_width)};
  return Ok();
}

Status CheckShape(const ModelConfig& config) {
  RM_TRY(AtLeastOne("layers", config.layers));
  RM_TRY(AtLeastOne("width", config.width));
  RM_TRY(AtLeastOne("max_samples", config.max_samples));
  RM_TRY(AtLeastOne("threads", config.threads));
  if (config.kind == ModelKind::kGpt) {
    RM_TRY(AtLeastOne("heads", config.heads));
    RM_TRY(AtLeastOne("context", config.context));
    RM_TRY(AtLeastOne("vocabulary", config.vocabulary));
    if (config.width % config.heads != 0)
      return Error{Code::kInvalid, fmt::format("width: must be divisible by heads (got {} and {})",
                                               config.width, config.heads)};
    return Ok();
  }
  RM_TRY(AtLeastOne("channels", config.channels));
  RM_TRY(AtLeastOne("height", config.height));
  RM_TRY(AtLeastOne("image_width", config.image_width));
  RM_TRY(AtLeastOne("classes", config.classes));
  if (config.kind != ModelKind::kCnn) return Ok();
  const int side = std::min(config.height, config.image_width);
  int most = 0;
  while (most < 20 && (side >> (most + 1)) >= 1) ++most;
  if (config.layers > most)
    return Error{Code::kInvalid,
                 fmt::format("layers: every stage halves the image, so {} x {} allows at most {} "
                             "(got {})",
                             config.height, config.image_width, most, config.layers)};
  if ((int64_t{config.width} << (config.layers - 1)) > kLargestExtent)
    return Error{Code::kInvalid, fmt::format("width: {} doubled {} times is more than {} channels",
                                             config.width, config.layers - 1, kLargestExtent)};
  return Ok();
}

}  // namespace ringmaster::engine
