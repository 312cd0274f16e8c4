// SPDX-License-Identifier: Apache-2.0

// Converts a job to the configuration of a training run, and a run to the fingerprint and description stored
// in its checkpoints. Pure functions, except OpenData, which reads the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/training_job.h"
#include "base/json.h"
#include "base/result.h"
#include "base/work_counter.h"
#include "worker/checkpoint/identity.h"
#include "worker/compute/engine/model.h"
#include "worker/compute/optimizer/optimizer.h"
#include "worker/data/dataset.h"

namespace ringmaster::trainer {

struct RunConfig {
  engine::ModelConfig model;  // images: OpenData sets channels, height, width, classes
  data::Config data;
  optimizer::Config optimizer;
  optimizer::Schedule schedule;  // OpenData sets total_steps when the job counts epochs
  int64_t samples_per_step = 0;
  int micro_batches = 0;  // per step
  int64_t steps = 0;      // in total; 0 until OpenData when the job counts epochs
  int64_t epochs = 0;
  bool exact = true;
  bool wide_sums = false;  // exact64: sums have two limbs of 32 bits
  uint64_t seed = 0;
  int64_t validate_every_steps = 0;
  int64_t validate_samples = 0;  // 0: all
  std::string device;            // auto | cpu | cuda
  std::string tokenizer;         // bytes | none
  std::string transport;         // auto | shm | ucx
  bool rdma_or_fail = false;     // RDMA is required, without a fallback
  std::string run;               // "namespace/name" of the job
  std::string checkpoint_path;   // empty: no checkpoints
  std::string checkpoint_from;   // spec.checkpoint.from
  int64_t checkpoint_every_steps = 0;
  int checkpoint_keep = 1;

  int SamplesPerMicroBatch() const { return static_cast<int>(samples_per_step / micro_batches); }
};

// Converts a validated native job. `threads` is per trainer. Errors: kInvalid for a decimal or kind that
// validation missed.
Result<RunConfig> MakeRunConfig(const api::TrainingJob& job, int threads);

// Returns the device of a native job's trainer on the node `node` (empty outside of Kubernetes): cuda instead
// of auto where its pod requests GPUs. A pod that requests a GPU and does not see one is on a faulty node; on
// a laptop the same job may use the CPU.
std::string DeviceOnNode(const api::TrainingJob& job, std::string_view node);

// Opens the data and completes the configuration from it (image shape, classes, steps of the epochs). Errors:
// kInvalid with the field's path when model and data do not match. `counter`: as Dataset::Open.
Result<std::unique_ptr<data::Dataset>> OpenData(RunConfig* config, WorkCounter* counter = nullptr);

// Returns what users should know before the run: how the data was divided, and that nothing is validated.
std::vector<std::string> DataNotes(const RunConfig& config, const data::Dataset& dataset);

// Returns the run and everything that determines the bits of its state and their meaning, by the names of the
// job's fields. Not the world size, threads, transport and checkpoint paths. Notes are the number of steps,
// if the learning rate depends on it, since a finished run may be continued with more steps, and the revision
// of the numerics, since an upgrade must not end a run.
checkpoint::Identity IdentityOf(const RunConfig& config, const engine::Layout& layout,
                                uint64_t data_fingerprint);
// Returns the `model` of this identity.
std::string Fingerprint(const RunConfig& config, const engine::Layout& layout, uint64_t data_fingerprint);

// Returns a fingerprint of everything that all members must have in common, except the data: what Fingerprint
// covers, what may change between runs but not between members of one, and the build (BuildOfNumerics).
std::string FingerprintOfMembers(const RunConfig& config, const engine::Layout& layout);

// The description stored in a checkpoint: model, tokenizer, layout, cursor, seed. `export` and `sample` need
// nothing else. The readers return kCorrupt when a part is missing or wrong.
Json DescribeRun(const RunConfig& config, const engine::Layout& layout, const data::Cursor& cursor);
Result<engine::ModelConfig> ModelFromDescription(const Json& meta);
Result<data::Cursor> CursorFromDescription(const Json& meta);
Result<std::string> TokenizerFromDescription(const Json& meta);

}  // namespace ringmaster::trainer
