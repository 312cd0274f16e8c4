// SPDX-License-Identifier: Apache-2.0

// Random operands to measure and compare the backends of attention, and readers of their results. Not
// thread-safe: one thread at a time, bound to the device.
#pragma once

#include <vector>

#include "base/result.h"
#include "worker/compute/cuda/attention_library.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::cuda {

struct AttentionTrial {
  Buffer<std::byte> qkv, out, d_out, d_qkv, workspace;
  Buffer<float> lse, scratch;

  // `scratch`: floats for the native backward pass. Blocks until the stream is idle.
  static Result<AttentionTrial> Create(Stream stream, const AttentionProblem& problem, int64_t scratch);

  AttentionOperands operands() const {
    return {.qkv = qkv.get(), .out = out.get(), .lse = lse.get(), .d_out = d_out.get(), .d_qkv = d_qkv.get()};
  }

  // Zeroes the outputs of the pass.
  void ClearOutputs(Stream stream, AttentionPass pass) const;
};

// The outputs of a pass for the first and the last samples, one vector per tensor: out and lse, or d_q, d_k
// and d_v. Blocks until the stream is idle.
using AttentionResults = std::vector<std::vector<float>>;
Result<AttentionResults> ReadResults(Stream stream, const AttentionProblem& problem, AttentionPass pass,
                                     const AttentionTrial& trial);

// Returns the largest |got - want| / |want| over the tensors, in the Euclidean norm; NaN when a result is
// NaN.
double MaxRelativeError(const AttentionResults& got, const AttentionResults& want);

}  // namespace ringmaster::cuda
