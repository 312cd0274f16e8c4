// SPDX-License-Identifier: Apache-2.0

// The models of the engine on a GPU: engine::Model whose parameters and gradients are device memory, with
// the same layout, names and initial values as on the CPU.
//
// A call always computes config.max_samples samples; a smaller batch is padded with samples that are
// ignored. Every product therefore has one shape, whose algorithm is chosen before the first step.
//
// Determinism: equal parameters, batch and choices of algorithms (gemm.h, attention.h) give equal bits on
// GPUs of one model, independent of earlier calls.
//
// Not thread-safe: as engine::Model, on a thread bound to the device.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "worker/compute/cuda/attention.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/runtime/stream.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::cuda {

// The operations whose algorithms are chosen by measurement.
struct Algorithms {
  Gemm& gemm;
  Attention& attention;
  // Changes whenever recorded graphs (graph_segments.h) are stale. Both versions only increase.
  uint64_t Version() const { return gemm.Version() + attention.Version(); }
};

struct ModelOptions {
  // Largest buffer of logits. A larger batch of tokens goes through the head in chunks. Chunks change the
  // order of sums over tokens, so all members of a job must use the same value.
  int64_t logits_bytes = int64_t{1} << 30;
  // Record work as CUDA graphs and replay it (graph_segments.h): the same bits with less work for the host.
  bool graphs = true;
};

// Creates a model that enqueues all its work on `stream`. Allocates all memory and chooses the algorithms of
// GEMM and attention. Errors: kExhausted with the arithmetic, kInvalid with the reason. REQUIRES: `stream`
// and `algorithms` outlive the model.
Result<std::unique_ptr<engine::Model>> CreateModel(const engine::ModelConfig& config, Stream stream,
                                                   const Algorithms& algorithms,
                                                   const ModelOptions& options = {});

}  // namespace ringmaster::cuda
