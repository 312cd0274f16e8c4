// SPDX-License-Identifier: Apache-2.0

// Sums of what members of a group have, term by term in the order of their ranks: the arithmetic of
// fabric::Combiner on device memory, with its bits.
#pragma once

#include <cstdint>

#include "worker/compute/cuda/runtime/stream_handle.h"

namespace ringmaster::cuda::kernels {

// own[i] = the terms of ranks 0, 1, ... of `world`, added one after the other, or their maximum. The term of
// `rank` is own[i] itself; those of the others lie one behind the other in `others`, `count` elements each.
// int32 wraps. T is int32_t or float.
template <class T>
void CombineOperands(Stream stream, int64_t count, int world, int rank, bool maximum, const T* others,
                     T* own);

}  // namespace ringmaster::cuda::kernels
