// SPDX-License-Identifier: Apache-2.0

// Soft-max with cross-entropy over rows of logits, and the sums that a batch is reported with. A negative
// target means that the row does not count. Rows are independent: a batch may be cut by rows, for instance to
// make logits and take their gradient chunk by chunk. T is float or Bf16.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// Rows lie `stride` >= classes apart. losses[r] = log(sum exp(logits)) - logits[target], 0 where the row does
// not count; hits[r] = 1 where the largest logit (the first of equals) is the target's.
template <class T>
void CrossEntropy(Stream stream, int64_t rows, int64_t classes, int64_t stride, const T* logits,
                  const int32_t* targets, float* losses, uint8_t* hits);

// The same, and logits become weights[r] times the gradient of losses[r]: softmax - one-hot, 0 where the row
// does not count and in columns [classes, stride).
template <class T>
void CrossEntropyGradient(Stream stream, int64_t rows, int64_t classes, int64_t stride, T* logits,
                          const int32_t* targets, const float* weights, float* losses, uint8_t* hits);

// weights[r] = 1 / how many rows of its sample count, 0 when none does.
void RowWeights(Stream stream, int64_t samples, int64_t rows_per_sample, const int32_t* targets,
                float* weights);

// engine::Sums, as the device writes them.
struct LossSums {
  double loss = 0;
  int64_t correct = 0;
  int64_t predictions = 0;
};

// The sum over samples of the mean loss of the rows that count, in double and in a fixed order. `per_sample`
// holds `samples` LossSums of scratch.
void SumLosses(Stream stream, int64_t samples, int64_t rows_per_sample, const float* losses,
               const uint8_t* hits, const int32_t* targets, LossSums* per_sample, LossSums* sums);

}  // namespace ringmaster::cuda::kernels
