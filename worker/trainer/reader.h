// SPDX-License-Identifier: Apache-2.0

// Reads the samples of one micro-batch into buffers of its own. Thread rule: one caller.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/compute/engine/model.h"
#include "worker/data/dataset.h"

namespace ringmaster::trainer {

class MicroBatchReader {
 public:
  MicroBatchReader(const data::Dataset& dataset, int max_samples);

  // Training samples at positions [begin, end) of an epoch, in the order of the keyed bijection.
  engine::Batch Train(uint64_t seed, int64_t epoch, int64_t begin, int64_t end);
  // Validation samples by index.
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
