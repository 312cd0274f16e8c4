// SPDX-License-Identifier: Apache-2.0

// What this GPU gives at best, and how long something takes on it.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "worker/compute/cuda/gemm.h"
#include "worker/compute/cuda/runtime/memory.h"
#include "worker/compute/cuda/runtime/stream.h"

namespace ringmaster::bench {

// Milliseconds of what `enqueue` gives to the stream: the median of some runs after two that warm up.
Result<double> Milliseconds(cuda::Stream stream, const std::function<void()>& enqueue);

// Random numbers in [-1, 1): products of zeros would be quicker than any real ones.
template <class T>
Result<cuda::Buffer<T>> RandomBuffer(cuda::Stream stream, int64_t size);

struct Ceilings {
  double products_tflops = 0;  // [size, size] by [size, size] in bf16
  double copy_gbps = 0;        // on the device, reading and writing counted
};
Result<Ceilings> MeasureCeilings(cuda::Stream stream, cuda::Gemm& gemm, int64_t product_size,
                                 int64_t copy_bytes);

}  // namespace ringmaster::bench
