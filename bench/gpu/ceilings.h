// SPDX-License-Identifier: Apache-2.0

// Measures the highest rates of this GPU, and how long work takes on it.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::bench {

// Returns the milliseconds of the work that `enqueue` adds to the stream: the median of the runs after two
// that warm up.
Result<double> Milliseconds(cuda::Stream stream, const std::function<void()>& enqueue);

// Returns random numbers in [-1, 1): products of zeros are faster than real products.
template <class T>
Result<cuda::Buffer<T>> RandomBuffer(cuda::Stream stream, int64_t size);

struct Ceilings {
  double products_tflops = 0;  // [size, size] by [size, size] in bf16
  // The same over two seconds without a pause, in which the GPU lowers its clock to keep within its power.
  double sustained_tflops = 0;
  double copy_gbps = 0;  // on the device, read and written bytes
};
Result<Ceilings> MeasureCeilings(cuda::Stream stream, cuda::Gemm& gemm, int64_t product_size,
                                 int64_t copy_bytes);

}  // namespace ringmaster::bench
