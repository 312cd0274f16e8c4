// SPDX-License-Identifier: Apache-2.0

// The name of a stream, apart from what can be done with it (stream.h): headers of kernels need no more, and
// nvcc does not compile the libraries behind base/result.h.
#pragma once

struct CUstream_st;  // the CUDA runtime's own name, so that no header of ours needs its headers

namespace ringmaster::cuda {

using Stream = CUstream_st*;

}  // namespace ringmaster::cuda
