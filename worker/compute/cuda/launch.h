// SPDX-License-Identifier: Apache-2.0

// Included first by every .cu file. Under nvcc it provides CUDA; tests compile the same sources with g++ and
// run them on the CPU with the emulation in tests/cuda/emulation. Kernels therefore use RM_SHARED instead of
// __shared__ and Launch instead of <<<>>>.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/compute/cuda/runtime/stream_handle.h"

#if defined(__CUDACC__)

#include <cuda_runtime.h>

// Arrays in the shared memory of a block: of a fixed size, and of the size `shared_bytes` of the launch.
#define RM_SHARED(Type, name, count) __shared__ Type name[count]
#define RM_DYNAMIC_SHARED(Type, name)                         \
  extern __shared__ __align__(16) unsigned char rm_dynamic[]; \
  Type* const name = reinterpret_cast<Type*>(rm_dynamic)

// Unrolls a loop over an array that must stay in registers.
#define RM_UNROLL _Pragma("unroll")

namespace ringmaster::cuda {

// Enqueues kernel(arguments...); an empty grid is a no-op. The next Synchronize or Event::Synchronize
// reports a failed launch (runtime/stream.h).
template <class... Parameters, class... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, Stream stream,
            const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr size_t kDefaultLimit = 48 * 1024;
  if (shared_bytes > kDefaultLimit) {
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  }
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
}

}  // namespace ringmaster::cuda

#elif defined(RINGMASTER_CUDA_EMULATION)
#include RINGMASTER_CUDA_EMULATION
#else
#error "compile .cu files with nvcc, or with RINGMASTER_CUDA_EMULATION set to a header that emulates CUDA"
#endif
