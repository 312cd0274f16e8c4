// SPDX-License-Identifier: Apache-2.0

// The kernels by name, one table per way of computing them. A model asks its Exec for the table and calls
// through it, so that which CPU (or, later, which device) runs is decided in one place. Every kernel is
// serial, works on plain memory of any alignment, and treats rows independently of each other: cutting a call
// by rows or columns gives the same bits.
//
// The signatures stand in the header of each operation; the fast and the reference code beside it.
#pragma once

#include "worker/compute/engine/kernels/bias.h"
#include "worker/compute/engine/kernels/causal_softmax.h"
#include "worker/compute/engine/kernels/conv.h"
#include "worker/compute/engine/kernels/convert.h"
#include "worker/compute/engine/kernels/cross_entropy.h"
#include "worker/compute/engine/kernels/embedding.h"
#include "worker/compute/engine/kernels/gelu.h"
#include "worker/compute/engine/kernels/layernorm.h"
#include "worker/compute/engine/kernels/maxpool.h"
#include "worker/compute/engine/kernels/pack.h"
#include "worker/compute/engine/kernels/relu.h"
#include "worker/compute/engine/kernels/tiles.h"

// clang-format off
#define RM_FOR_ALL_KERNELS(do_) \
  do_(AddBias) \
  do_(StorePanel) \
  do_(ColumnSums) \
  do_(CausalSoftmax) \
  do_(CausalSoftmaxBackward) \
  do_(RowDots) \
  do_(Patches) \
  do_(PatchesBackward) \
  do_(ToBf16) \
  do_(PackRows) \
  do_(PackColumns) \
  do_(TransposeToBf16) \
  do_(CrossEntropy) \
  do_(CrossEntropyGradient) \
  do_(EmbeddingForward) \
  do_(EmbeddingBackward) \
  do_(PositionBackward) \
  do_(GeluForward) \
  do_(GeluBackward) \
  do_(LayerNormForward) \
  do_(LayerNormBackward) \
  do_(LayerNormBackwardParams) \
  do_(MaxPoolForward) \
  do_(MaxPoolBackward) \
  do_(ReluForward) \
  do_(ReluBackward)
// clang-format on

namespace ringmaster::engine::kernels {

struct Kernels {
  const char* name;
#define RM_MEMBER(kernel) kernel##Fn* kernel;
  RM_FOR_ALL_KERNELS(RM_MEMBER)
#undef RM_MEMBER
  MultiplyTilesFn* multiply_tiles = nullptr;  // null: products of bfloat16 are oneDNN's
};

// Plain loops, written to be read; what the fast ones are tested against.
const Kernels& ReferenceKernels();
// The widest vectors that this CPU has, and its tiles. All choices give equal bits but for products.
const Kernels& FastKernels();
// By name ("base", "avx2", "avx512", "tiles"), or null when this CPU or build lacks it: for tests.
const Kernels* KernelsFor(const char* name);

}  // namespace ringmaster::engine::kernels
