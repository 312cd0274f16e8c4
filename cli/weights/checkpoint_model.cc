// SPDX-License-Identifier: Apache-2.0

#include "cli/weights/checkpoint_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "cli/plot/progress_bar.h"
#include "worker/trainer/run_config.h"

namespace ringmaster::cli {
namespace {

constexpr size_t kMaxPath = 4096;

// Errors: those of a disk. A path that does not exist is no folder.
Result<bool> IsFolder(const std::string& path) {
  std::error_code error;
  const bool is = std::filesystem::is_directory(path, error);
  if (!error || error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory)
    return is;
  return ErrnoError("look at " + path, error.value());
}

// The output folder of a run has its checkpoints in a subfolder, or names their folder.
Result<std::string> Resolve(const std::string& path) {
  const auto elsewhere = ReadFile(path + "/checkpoint_path", kMaxPath);
  if (!elsewhere.ok() && elsewhere.error().code != Code::kNotFound) return elsewhere.error();
  if (elsewhere.ok()) {
    RM_ASSIGN(const bool there, IsFolder(*elsewhere));
    if (there) return *elsewhere;
  }
  const std::string inside = path + "/checkpoints";
  RM_ASSIGN(const bool has_folder, IsFolder(inside));
  return has_folder ? inside : path;
}

}  // namespace

Result<CheckpointModel> CheckpointModel::Load(const std::string& path, int samples) {
  RM_ASSIGN(const bool is_folder, IsFolder(path));
  if (!is_folder)
    return Error{Code::kNotFound,
                 path + ": no such checkpoint; give a step-... folder or the --out folder of a run"};
  CheckpointModel result;
  RM_ASSIGN(const std::string folder, Resolve(path));
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
