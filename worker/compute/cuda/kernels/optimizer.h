// SPDX-License-Identifier: Apache-2.0

// One step of an optimizer over the whole arena in one launch, with the bits of worker/compute/optimizer
// (reference.cc has the formulas and their source). Scalars are read from device memory, so that a captured
// graph can be replayed with other scalars.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/compute/cuda/runtime/stream_handle.h"
#include "worker/compute/engine/layout.h"
#include "worker/compute/optimizer/kernels.h"

namespace ringmaster::cuda::kernels {

// The contents of a block of engine::kBlock elements: `live` trainable elements, then padding, which stays
// zero.
struct BlockRule {
  uint16_t live = 0;
  uint16_t decays = 0;  // 1 where weight decay applies
};
// Returns one rule per block of the layout, to be copied to the device once.
std::vector<BlockRule> MakeBlockRules(const engine::Layout& layout);

// The scalars of a step, without and with weight decay (optimizer::MakeSgd, MakeAdamW).
struct SgdPair {
  optimizer::SgdScalars plain;
  optimizer::SgdScalars decayed;
  int32_t skip = 0;  // nonzero: the step writes nothing
};
struct AdamWPair {
  optimizer::AdamWScalars plain;
  optimizer::AdamWScalars decayed;
  int32_t skip = 0;
};

// Inputs of the decision that the device takes before a step. It writes two fields of `scalars`:
// gradient_scale, the clip factor of *norm (optimizer::ClipFactor), and skip, set unless *contributors
// equals required_contributors.
struct UpdateDecision {
  double clip_norm = 0;
  const double* norm = nullptr;
  const int32_t* contributors = nullptr;
  int32_t required_contributors = 1;
};
void DecideUpdate(Stream stream, const UpdateDecision& decision, SgdPair* scalars);
void DecideUpdate(Stream stream, const UpdateDecision& decision, AdamWPair* scalars);

// Device memory, aligned to 16 bytes; an output may be the same memory as its input. Padding becomes zero.
// Shape of each array: (blocks * engine::kBlock); rules (blocks).
struct Arena {
  int64_t blocks = 0;
  const BlockRule* rules = nullptr;
  const float* gradient = nullptr;
  const float* params = nullptr;
  const float* state0 = nullptr;
  const float* state1 = nullptr;  // null for SGD
  float* next_params = nullptr;
  float* next_state0 = nullptr;
  float* next_state1 = nullptr;
};
void Sgd(Stream stream, const SgdPair* scalars, const Arena& arena);
void AdamW(Stream stream, const AdamWPair* scalars, const Arena& arena);

}  // namespace ringmaster::cuda::kernels
