#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "worker/engine/model.h"
#include "worker/engine/models/cnn.h"
#include "worker/engine/models/gpt.h"
#include "worker/engine/models/mlp.h"

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

Status Validate(const ModelConfig& config) {
  RM_TRY(AtLeastOne("layers", config.layers));
  RM_TRY(AtLeastOne("width", config.width));
  RM_TRY(AtLeastOne("max_samples", config.max_samples));
  RM_TRY(AtLeastOne("threads", config.threads));
  if (config.precision == Precision::kBf16 && !kernels::MatmulBf16::Supported())
    return Error{Code::kInvalid,
                 "precision: bf16 needs a CPU with AVX512_BF16 or AMX, which this one lacks; use fp32"};
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

}  // namespace

Result<std::unique_ptr<Model>> CreateModel(const ModelConfig& config) {
  RM_TRY(Validate(config));
  try {
    switch (config.kind) {
      case ModelKind::kGpt:
        return std::unique_ptr<Model>(std::make_unique<Gpt>(config, kernels::FastKernels()));
      case ModelKind::kMlp:
        return std::unique_ptr<Model>(std::make_unique<Mlp>(config, kernels::FastKernels()));
      case ModelKind::kCnn:
        return std::unique_ptr<Model>(std::make_unique<Cnn>(config, kernels::FastKernels()));
    }
  } catch (const std::bad_alloc&) {
    return Error{Code::kExhausted,
                 "not enough memory for the activations: lower the samples per micro-batch"};
  }
  return Error{Code::kInvalid, "unknown model kind"};
}

}  // namespace ringmaster::engine
