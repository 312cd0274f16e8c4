// SPDX-License-Identifier: Apache-2.0

// From a job to what a training run needs, and from a run to the fingerprint and description kept in its
// checkpoints. Pure functions, but OpenData which reads the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/training_job.h"
#include "base/json.h"
#include "base/result.h"
#include "worker/compute/engine/model.h"
#include "worker/compute/optimizer/optimizer.h"
#include "worker/data/dataset.h"

namespace ringmaster::trainer {

struct RunConfig {
  engine::ModelConfig model;  // images: channels, height, width, classes are completed by FitToData
  data::Config data;
  optimizer::Config optimizer;
  optimizer::Schedule schedule;  // total_steps is completed by FitToData when the job counts epochs
  int64_t samples_per_step = 0;
  int micro_batches = 0;  // V
  int64_t steps = 0;      // total; 0 until FitToData when the job counts epochs
  int64_t epochs = 0;
  bool exact = true;
  uint64_t seed = 0;
  int64_t validate_every_steps = 0;
  std::string device;           // auto | cpu | cuda
  std::string tokenizer;        // bytes | none
  std::string transport;        // auto | shm | ucx
  bool rdma_or_fail = false;    // RDMA was asked for, and nothing else will do
  std::string checkpoint_path;  // empty: none is written
  int64_t checkpoint_every_steps = 0;
  int checkpoint_keep = 1;

  int SamplesPerMicroBatch() const { return static_cast<int>(samples_per_step / micro_batches); }
};

// Of a validated native job. `threads` per trainer. kInvalid where a decimal or kind makes no sense after
// all.
Result<RunConfig> MakeRunConfig(const api::TrainingJob& job, int threads);

// Opens the data and completes the configuration by it (image shape, classes, steps of epochs). kInvalid with
// the field's path when model and data do not fit each other.
Result<std::unique_ptr<data::Dataset>> OpenData(RunConfig* config);

// What must be equal for a checkpoint to be continued: everything that shapes bits and meaning. Not in it:
// world size, threads, transport, paths of checkpoints, number of steps (a finished run may be continued with
// more).
std::string Fingerprint(const RunConfig& config, const engine::Layout& layout, uint64_t data_fingerprint);

// Description stored in a checkpoint: model, tokenizer, layout, cursor, seed. Exporters and samplers need
// nothing else.
Json DescribeRun(const RunConfig& config, const engine::Layout& layout, const data::Cursor& cursor);
Result<engine::ModelConfig> ModelFromDescription(const Json& meta);
Result<data::Cursor> CursorFromDescription(const Json& meta);
Result<std::string> TokenizerFromDescription(const Json& meta);

}  // namespace ringmaster::trainer
