// SPDX-License-Identifier: Apache-2.0

#include <new>

#include "worker/compute/engine/model.h"
#include "worker/compute/engine/models/batch_rules.h"
#include "worker/compute/engine/models/cnn.h"
#include "worker/compute/engine/models/gpt.h"
#include "worker/compute/engine/models/mlp.h"

namespace ringmaster::engine {

Result<std::unique_ptr<Model>> CreateModel(const ModelConfig& config) {
  RM_TRY(CheckShape(config));
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
