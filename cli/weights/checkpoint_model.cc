// SPDX-License-Identifier: Apache-2.0

#include "cli/weights/checkpoint_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "cli/plot/progress_bar.h"
#include "cli/weights/checkpoint_folder.h"
#include "worker/trainer/run_config.h"

namespace ringmaster::cli {

Result<CheckpointModel> CheckpointModel::Load(const std::string& path, int samples) {
  RM_ASSIGN(const bool is_folder, IsFolder(path));
  if (!is_folder)
    return Error{Code::kNotFound,
                 path + ": no such checkpoint; give a step-... folder or the --out folder of a run"};
  CheckpointModel result;
  RM_ASSIGN(const std::string folder, CheckpointsOf(path));
  {
    ProgressBar bar("loading the checkpoint");
    RM_ASSIGN(result.loaded_, checkpoint::Load(folder, bar.counter()));
  }
  RM_ASSIGN(engine::ModelConfig config, trainer::ModelFromDescription(result.loaded_.meta));
  RM_ASSIGN(result.tokenizer_, trainer::TokenizerFromDescription(result.loaded_.meta));
  config.max_samples = samples;
  config.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
  RM_ASSIGN(result.model_, engine::CreateModel(config));
  const checkpoint::Loaded::Part* params = result.loaded_.Find("params");
  const auto elements = static_cast<size_t>(result.model_->layout().elements);
  if (params == nullptr || params->bytes.size() != elements * sizeof(float))
    return Error{
        Code::kCorrupt,
        fmt::format("{}: the size of the weights does not match the model ({} bytes for {} elements)", path,
                    params == nullptr ? 0 : params->bytes.size(), elements)};
  result.params_ = params->Floats();
  return result;
}

}  // namespace ringmaster::cli
