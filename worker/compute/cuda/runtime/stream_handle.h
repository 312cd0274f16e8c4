// SPDX-License-Identifier: Apache-2.0

// The handle type of a stream. Headers of kernels include only this and not stream.h, because nvcc cannot
// compile the libraries that base/result.h uses.
#pragma once

struct CUstream_st;  // declared here so that our headers do not include those of CUDA

namespace ringmaster::cuda {

using Stream = CUstream_st*;

}  // namespace ringmaster::cuda
