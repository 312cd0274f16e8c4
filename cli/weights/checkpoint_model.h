// SPDX-License-Identifier: Apache-2.0

// A model with the weights of a checkpoint, for `sample` and `export`. Main thread only.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::cli {

class CheckpointModel {
 public:
  // `path` is a checkpoint, a folder of checkpoints (the newest valid one is loaded), or the output folder of
  // a run. `samples` is the largest batch that the model accepts.
  static Result<CheckpointModel> Load(const std::string& path, int samples);

  engine::Model& model() { return *model_; }
  std::span<const float> params() const { return params_; }
  const std::string& tokenizer() const { return tokenizer_; }
  const checkpoint::Loaded& checkpoint() const { return loaded_; }

 private:
  CheckpointModel() = default;

  checkpoint::Loaded loaded_;
  std::unique_ptr<engine::Model> model_;
  std::span<const float> params_;  // into loaded_
  std::string tokenizer_;
};

}  // namespace ringmaster::cli
