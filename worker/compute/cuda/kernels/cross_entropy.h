// SPDX-License-Identifier: Apache-2.0

// Softmax with cross-entropy, as torch.nn.functional.cross_entropy without reduction, and the sums of a
// batch. A row with a negative target is ignored. Rows are independent, so a batch may be processed in
// chunks of rows. T is float or Bf16.
//
// Shapes: logits (rows, classes) with row stride `stride` >= classes; targets, weights, losses, hits (rows).
// Losses are in nats.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/kernels/bf16.h"
#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// losses[r] = log(sum over i of exp(logits[r, i])) - logits[r, target], 0 for an ignored row. hits[r] = 1
// when the target has the largest logit, the first of equal ones.
template <class T>
void CrossEntropy(Stream stream, int64_t rows, int64_t classes, int64_t stride, const T* logits,
                  const int32_t* targets, float* losses, uint8_t* hits);

// The same, and replaces logits by weights[r] * (softmax - one-hot), the gradient of weights[r] * losses[r];
// 0 for an ignored row and in columns [classes, stride).
template <class T>
void CrossEntropyGradient(Stream stream, int64_t rows, int64_t classes, int64_t stride, T* logits,
                          const int32_t* targets, const float* weights, float* losses, uint8_t* hits);

// weights[r] = 1 / (number of rows of its sample that are not ignored), 0 when all are ignored. Shape:
// targets, weights (samples * rows_per_sample).
void RowWeights(Stream stream, int64_t samples, int64_t rows_per_sample, const int32_t* targets,
                float* weights);

// engine::Sums as the device writes it.
struct LossSums {
  double loss = 0;
  int64_t correct = 0;
  int64_t predictions = 0;
};

// *sums = the sum over samples of the mean loss of the rows that are not ignored, in double and in a fixed
// order. Shape: losses, hits, targets (samples * rows_per_sample); per_sample (samples), scratch.
void SumLosses(Stream stream, int64_t samples, int64_t rows_per_sample, const float* losses,
               const uint8_t* hits, const int32_t* targets, LossSums* per_sample, LossSums* sums);

}  // namespace ringmaster::cuda::kernels
