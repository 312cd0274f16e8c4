// SPDX-License-Identifier: Apache-2.0

// The engine's models on a GPU: engine::Model whose parameters and gradients are device memory, with the same
// layout, names and initial values as on the CPU.
//
// A call computes all of config.max_samples; those beyond the batch are filled up with samples that do not
// count. So every product has one shape, whose algorithm is known before the first step.
//
// Determinism: equal parameters, batch and choices of algorithms (worker/compute/cuda/gemm.h, attention.h)
// give equal bits on GPUs of one model, whatever ran before.
//
// Thread rule: that of engine::Model, on a thread bound to the device.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "worker/compute/cuda/attention.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/runtime/stream.h"
#include "worker/compute/engine/model.h"

namespace ringmaster::cuda {

// What models compute with whose algorithms are chosen by measuring.
struct Algorithms {
  Gemm& gemm;
  Attention& attention;
  // Another number whenever recorded work (models/graph_segments.h) holds what is no longer so: each only
  // grows.
  uint64_t Version() const { return gemm.Version() + attention.Version(); }
};

struct ModelOptions {
  // Logits that exist at a time: a larger batch of tokens goes through the head in chunks, which changes the
  // order of sums over tokens and so is the same for all members of a job.
  int64_t logits_bytes = int64_t{1} << 30;
  // Work is recorded and replayed (models/graph_segments.h): the same bits, and less to do for the host.
  bool graphs = true;
};

// `stream` and `algorithms`, on which all its work goes, outlive the model. All memory is taken here, and the
// algorithms of its products and attention are chosen: kExhausted tells the arithmetic, kInvalid what cannot
// be.
Result<std::unique_ptr<engine::Model>> CreateModel(const engine::ModelConfig& config, Stream stream,
                                                   const Algorithms& algorithms,
                                                   const ModelOptions& options = {});

}  // namespace ringmaster::cuda
