// SPDX-License-Identifier: Apache-2.0

// The table of kernels, one instance per instruction set. A model calls the kernels through the table of its
// Exec, so that the instruction set is selected in one place.
//
// A kernel is serial, accepts memory of any alignment, and treats rows independently of each other, so that
// dividing a call by rows or columns does not change the bits.
//
// The header of each operation (gelu.h) declares the signature and states the shapes; gelu.cc has the
// vectorised code and gelu_reference.cc the reference.
#pragma once

#include "worker/compute/engine/kernels/bias.h"
#include "worker/compute/engine/kernels/causal_softmax.h"
#include "worker/compute/engine/kernels/conv.h"
#include "worker/compute/engine/kernels/convert.h"
#include "worker/compute/engine/kernels/cross_entropy.h"
#include "worker/compute/engine/kernels/embedding.h"
#include "worker/compute/engine/kernels/gelu.h"
#include "worker/compute/engine/kernels/layernorm.h"
#include "worker/compute/engine/kernels/matmul.h"
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
  do_(MatmulFp32) \
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
  MultiplyTilesFn* multiply_tiles = nullptr;  // null: oneDNN computes bfloat16 products
};

// Returns plain loops, the reference that the tests compare the others with.
const Kernels& ReferenceKernels();
// Returns the kernels for the widest vectors of this CPU, and its AMX tiles. All tables give equal bits,
// except for products of bfloat16.
const Kernels& FastKernels();
// Returns the table of a name ("base", "avx2", "avx512", "tiles"), or null when this CPU or build lacks it.
// For tests.
const Kernels* KernelsFor(const char* name);

}  // namespace ringmaster::engine::kernels
