// SPDX-License-Identifier: Apache-2.0

// What makers of attention are measured and compared on: random operands, and the numbers that a pass writes.
//
// Thread rule: one thread at a time, bound to the device.
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

  // `scratch`: floats that our own backward pass wants. Waits for the stream.
  static Result<AttentionTrial> Create(Stream stream, const AttentionProblem& problem, int64_t scratch);

  AttentionOperands operands() const {
    return {.qkv = qkv.get(), .out = out.get(), .lse = lse.get(), .d_out = d_out.get(), .d_qkv = d_qkv.get()};
  }

  // Zeros what the pass writes.
  void Forget(Stream stream, AttentionPass pass) const;
};

// Numbers that the pass has written, of the first samples and of the last ones: out and lse, or d_q, d_k and
// d_v, each by itself. Waits for the stream.
using AttentionResults = std::vector<std::vector<float>>;
Result<AttentionResults> ReadResults(Stream stream, const AttentionProblem& problem, AttentionPass pass,
                                     const AttentionTrial& trial);

// |got - want| relative to |want|, of the worst of them; no number when there is one that is none.
double MaxRelativeError(const AttentionResults& got, const AttentionResults& want);

}  // namespace ringmaster::cuda
