// SPDX-License-Identifier: Apache-2.0

// MicroBatchReader reads the samples of one micro-batch into its buffers, which the next call overwrites. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/compute/engine/model.h"
#include "worker/data/dataset.h"

namespace ringmaster::trainer {

class MicroBatchReader {
 public:
  MicroBatchReader(const data::Dataset& dataset, int max_samples);

  // Reads the training samples at positions [begin, end) of an epoch, in the epoch's shuffled order.
  engine::Batch Train(uint64_t seed, int64_t epoch, int64_t begin, int64_t end);
  // Reads the validation samples with indices [begin, end).
  engine::Batch Validation(int64_t begin, int64_t end);

 private:
  engine::Batch Fill(data::Split split);

  const data::Dataset& dataset_;
  std::vector<int64_t> indices_;
  std::vector<int32_t> tokens_;
  std::vector<float> images_;
  std::vector<int32_t> targets_;
};

}  // namespace ringmaster::trainer
