// SPDX-License-Identifier: Apache-2.0

#include "cli/run/preflight.h"

#include <fmt/format.h>

#include <filesystem>

#include "api/launch.h"
#include "cli/plot/progress_bar.h"
#include "cli/run/field_notes.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/compute/device/load_plugin.h"
#include "worker/compute/engine/model.h"
#include "worker/inventory/device_selection.h"
#include "worker/inventory/gpu_monitor.h"
#include "worker/inventory/inventory.h"
#include "worker/trainer/memory.h"

namespace ringmaster::cli {
namespace {

std::string Absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

constexpr int64_t kLogBytes = int64_t{1} << 20;  // that a run of programs needs at least

// Whether the trainers compute on a GPU. A plugin alone is none: every image has one.
bool ComputesOnGpu(const std::string& choice) {
  return device::MayUseGpu(choice) && !inventory::FindGpus(inventory::GpuMonitor::kLibrary, "").empty();
}

// Checks the sum over all trainers: without it the kernel would kill one of them.
Status FitsIntoMemory(const trainer::RunConfig& config, const api::Spec& spec) {
  const auto need = trainer::PredictMemory(config, false);
  if (!need.ok()) return Ok();  // creating the model reports what is wrong with it
  const inventory::Memory memory = inventory::ReadMemory("");
  return trainer::CheckMemory(
      *need, spec.workers.replicas * api::ProgramsPerWorker(spec),
      {.total = memory.limit_bytes > 0 ? memory.limit_bytes : memory.total_bytes, .available = 0});
}

}  // namespace

std::string OutputFolderOf(const api::TrainingJob& job, const std::string& out) {
  std::string folder = Absolute(out.empty() ? "ringmaster-out/" + job.metadata.name : out);
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

Result<RunPlan> MakePlan(api::TrainingJob job, const std::string& checkpoint_folder) {
  RunPlan plan;
  plan.notes = FieldsWithoutEffect(job.spec);
  job.spec.checkpoint.path = Absolute(checkpoint_folder);
  job.spec.checkpoint.from = Absolute(job.spec.checkpoint.from);
  if (job.spec.framework != "native") {
    RM_ASSIGN(UserPrograms programs, ReadUserPrograms(job, &plan.notes));
    if (api::UsesLibrary(job.spec)) {
      plan.library = std::move(programs.workers);
    } else {
      plan.programs = std::move(programs);
    }
    plan.checkpoint_bytes = kLogBytes;
    plan.job = std::move(job);
    return plan;
  }
  if (!job.spec.training.has_value())
    return Error{Code::kInvalid, "spec.training: required with framework native"};
  // Workers run in other folders, so every path must be absolute.
  api::Data& data = job.spec.training->data;
  data.path = Absolute(data.path);
  data.validationPath = Absolute(data.validationPath);
  RM_ASSIGN(plan.config, trainer::MakeRunConfig(job, 1));
  Result<std::unique_ptr<data::Dataset>> dataset = std::unique_ptr<data::Dataset>();
  {
    ProgressBar bar("reading the data");
    dataset = trainer::OpenData(&plan.config, bar.counter());
  }
  if (!dataset.ok()) return dataset.error();
  for (std::string& note : trainer::DataNotes(plan.config, **dataset)) plan.notes.push_back(std::move(note));
  if (!ComputesOnGpu(plan.config.device)) RM_TRY(FitsIntoMemory(plan.config, job.spec));
  engine::ModelConfig small = plan.config.model;
  small.max_samples = 1;  // saves memory for activations; the layout does not depend on it
  auto model = engine::CreateModel(small);
  if (!model.ok()) return model.error().In("spec.training.model");
  const engine::Layout& layout = (*model)->layout();
  plan.identity = trainer::IdentityOf(plan.config, layout, (*dataset)->Fingerprint());
  const int64_t arrays = 1 + optimizer::StateArrays(plan.config.optimizer.kind);
  plan.checkpoint_bytes = layout.elements * arrays * static_cast<int64_t>(sizeof(float)) + (int64_t{1} << 20);
  plan.job = std::move(job);
  return plan;
}

Result<int64_t> FindResumeStep(RunPlan* plan) {
  const std::string& folder = plan->job.spec.checkpoint.path;
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error) && plan->identity.from.empty()) return int64_t{0};
  ProgressBar bar("checking the newest checkpoint");
  const auto loaded = checkpoint::LoadNewest(folder, plan->identity, nullptr, bar.counter());
  if (!loaded.ok()) {
    if (loaded.error().code == Code::kNotFound && plan->identity.from.empty()) return int64_t{0};
    return loaded.error();
  }
  if (plan->config.steps > 0 && loaded->step > plan->config.steps)
    return Error{Code::kInvalid,
                 fmt::format("{}: has {} steps, more than spec.training.steps, which is {}; raise it, "
                             "or choose another folder with --out",
                             loaded->path, loaded->step, plan->config.steps)};
  for (const std::string& skipped : loaded->skipped)
    plan->notes.push_back("skipped a damaged checkpoint: " + skipped);
  for (const std::string& change : loaded->AllChanges())
    plan->notes.push_back(fmt::format("continues from {}, but {}", loaded->path, change));
  return loaded->step;
}

}  // namespace ringmaster::cli
