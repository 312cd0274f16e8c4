// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include "worker/compute/cuda/kernels/attention.h"
#include "worker/compute/cuda/kernels/layernorm.h"
#include "worker/compute/cuda/models/cnn.h"
#include "worker/compute/cuda/models/gpt.h"
#include "worker/compute/cuda/models/mlp.h"
#include "worker/compute/cuda/models/model.h"

namespace ringmaster::cuda {
namespace {

// The largest z dimension of a grid: attention has one z per sample.
constexpr int64_t kMostSamples = 65535;

// Checks the limits of the kernels.
Status CheckGpt(const engine::ModelConfig& config) {
  if (config.width / config.heads > kernels::kLargestHead)
    return Error{Code::kInvalid, fmt::format("heads: on a GPU the head size is at most {} (got {} / {})",
                                             kernels::kLargestHead, config.width, config.heads)};
  if (config.width > kernels::kLargestNormWidth)
    return Error{Code::kInvalid, fmt::format("width: on a GPU at most {} (got {})",
                                             kernels::kLargestNormWidth, config.width)};
  if (config.max_samples > kMostSamples)
    return Error{Code::kInvalid,
                 fmt::format("microBatches: on a GPU a micro-batch has at most {} samples (got {}): raise it",
                             kMostSamples, config.max_samples)};
  return Ok();
}

template <template <class> class Kind>
Result<std::unique_ptr<engine::Model>> Make(const engine::ModelConfig& config, Stream stream,
                                            const Algorithms& algorithms, const ModelOptions& options) {
  const auto started = [](auto model) -> Result<std::unique_ptr<engine::Model>> {
    RM_TRY(model->Start());
    return std::unique_ptr<engine::Model>(std::move(model));
  };
  if (config.precision == engine::Precision::kBf16)
    return started(std::make_unique<Kind<Bf16>>(config, stream, algorithms, options));
  return started(std::make_unique<Kind<float>>(config, stream, algorithms, options));
}

}  // namespace

Result<std::unique_ptr<engine::Model>> CreateModel(const engine::ModelConfig& config, Stream stream,
                                                   const Algorithms& algorithms,
                                                   const ModelOptions& options) {
  RM_TRY(engine::CheckShape(config));
  switch (config.kind) {
    case engine::ModelKind::kGpt:
      RM_TRY(CheckGpt(config));
      return Make<Gpt>(config, stream, algorithms, options);
    case engine::ModelKind::kMlp:
      return Make<Mlp>(config, stream, algorithms, options);
    case engine::ModelKind::kCnn:
      return Make<Cnn>(config, stream, algorithms, options);
  }
  return Error{Code::kInvalid, "unknown model kind"};
}

}  // namespace ringmaster::cuda
