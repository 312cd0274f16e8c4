// SPDX-License-Identifier: Apache-2.0

// Reduction over the operands of the ranks of a group, in rank order: fabric::Combiner on device memory,
// with the same bits.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// own[i] = sum (or maximum) over ranks 0, 1, ... of their element i, in rank order. The operand of `rank` is
// `own` itself; `others` holds those of the other ranks in rank order. int32 sums wrap. Shape: own (count);
// others (world - 1, count). T is int32_t or float.
template <class T>
void CombineOperands(Stream stream, int64_t count, int world, int rank, bool maximum, const T* others,
                     T* own);

}  // namespace ringmaster::cuda::kernels
