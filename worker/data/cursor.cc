// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "base/check.h"
#include "worker/data/dataset.h"

namespace ringmaster::data {

StepSamples NextStep(const Cursor& cursor, int64_t samples_per_step, int64_t epoch_size) {
  CHECK(samples_per_step >= 1 && cursor.epoch >= 0 && cursor.position >= 0 && cursor.position < epoch_size,
        "position {} of {}", cursor.position, epoch_size);
  return {.epoch = cursor.epoch,
          .position = cursor.position,
          .count = std::min(samples_per_step, epoch_size - cursor.position)};
}

Cursor Advance(const Cursor& cursor, const StepSamples& taken, int64_t epoch_size) {
  CHECK(taken.epoch == cursor.epoch && taken.position == cursor.position && taken.count >= 1 &&
            taken.count <= epoch_size - cursor.position,
        "a step of {} samples at {} does not follow position {}", taken.count, taken.position,
        cursor.position);
  const int64_t position = cursor.position + taken.count;
  if (position == epoch_size) return {.epoch = cursor.epoch + 1, .position = 0};
  return {.epoch = cursor.epoch, .position = position};
}

Slice MicroBatch(const StepSamples& step, int64_t samples_per_step, int micro_batches, int v) {
  CHECK(micro_batches >= 1 && v >= 0 && v < micro_batches, "micro-batch {} of {}", v, micro_batches);
  CHECK(samples_per_step % micro_batches == 0, "{} samples per step are not a multiple of {} micro-batches",
        samples_per_step, micro_batches);
  const int64_t width = samples_per_step / micro_batches;
  return {.begin = std::min(v * width, step.count), .end = std::min((v + 1) * width, step.count)};
}

int64_t StepsPerEpoch(int64_t epoch_size, int64_t samples_per_step) {
  CHECK(epoch_size >= 1 && samples_per_step >= 1);
  return (epoch_size - 1) / samples_per_step + 1;
}

}  // namespace ringmaster::data
