// SPDX-License-Identifier: Apache-2.0

// One warp per row. Values that it reads twice come from the first-level cache the second time.
#include "worker/compute/cuda/kernels/layernorm.h"

#include "worker/compute/cuda/kernels/column_sums.h"
#include "worker/compute/cuda/kernels/vector.h"
#include "worker/compute/cuda/kernels/warp.h"
#include "worker/compute/engine/kernels/layernorm.h"

namespace ringmaster::cuda::kernels {
namespace {

constexpr int kNormWarps = 8;
// sm_86 has the least shared memory per block.
static_assert(2 * kLargestNormWidth * sizeof(float) <= 99 * 1024);
constexpr float kEpsilon = engine::kernels::kLayerNormEpsilon;

// With kResidual, first computes and stores x = residual + (add + bias); without, the last four arguments
// are null.
template <int kCount, bool kResidual, class T>
__global__ void __launch_bounds__(kWarp* kNormWarps)
    LayerNormForwardKernel(int64_t rows, int64_t width, const T* x, const float* gamma, const float* beta,
                           T* out, float* mean, float* rstd, const T* residual, const T* add,
                           const float* bias, T* sum) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kNormWarps + threadIdx.y;
  if (row >= rows) return;
  const int64_t first = row * width;
  const int64_t lane = static_cast<int>(threadIdx.x) * kCount;
  constexpr int kStep = kWarp * kCount;
  const float share = 1.0f / static_cast<float>(width);
  float total = 0;
  for (int64_t c = lane; c < width; c += kStep) {
    float v[kCount];
    if constexpr (kResidual) {
      float more[kCount];
      float b[kCount] = {};
      Load(residual + first + c, v);
      Load(add + first + c, more);
      if (bias != nullptr) Load(bias + c, b);
      RM_UNROLL
      for (int j = 0; j < kCount; ++j) v[j] = ToFloat(FromFloat<T>(v[j] + (more[j] + b[j])));
      Store(sum + first + c, v);
    } else {
      Load(x + first + c, v);
    }
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) total += v[j];
  }
  const float average = WarpSum(total) * share;
  const T* const values = kResidual ? sum : x;
  float squares = 0;
  for (int64_t c = lane; c < width; c += kStep) {
    float v[kCount];
    Load(values + first + c, v);
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) squares += (v[j] - average) * (v[j] - average);
  }
  const float inverse = 1.0f / sqrtf(WarpSum(squares) * share + kEpsilon);
  for (int64_t c = lane; c < width; c += kStep) {
    float v[kCount];
    float g[kCount];
    float b[kCount];
    Load(values + first + c, v);
    Load(gamma + c, g);
    Load(beta + c, b);
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) v[j] = (v[j] - average) * inverse * g[j] + b[j];
    Store(out + first + c, v);
  }
  if (threadIdx.x == 0) {
    mean[row] = average;
    rstd[row] = inverse;
  }
}

// Returns the index of the warp's sum of column c. The order is such that the lanes, with kCount columns
// each, write to neighbouring words.
template <int kCount>
__device__ __forceinline__ int64_t SumSlot(int64_t c) {
  constexpr int kStep = kWarp * kCount;
  const int64_t chunk = c / kStep * kStep;
  const int64_t inside = c - chunk;
  return chunk + inside % kCount * kWarp + inside / kCount;
}
RM_HOST_DEVICE constexpr int64_t SumSlots(int64_t width) {
  return (width + kWarp * kPack - 1) / (kWarp * kPack) * (kWarp * kPack);
}

// The warps of the grid take rows in turn. Every lane adds d_gamma and d_beta of its columns in its warp's
// shared memory, shape (2, SumSlots). A block adds the sums of its warps in order and writes one row of
// `partial`, shape (2, width).
template <int kCount, class T>
__global__ void LayerNormBackwardKernel(int64_t rows, int64_t width, const T* dy, const T* x,
                                        const float* gamma, const float* mean, const float* rstd,
                                        bool accumulate, T* dx, float* partial) {
  RM_DYNAMIC_SHARED(float, sums);
  const int64_t slots = SumSlots(width);
  float* const d_gamma = sums + static_cast<int64_t>(threadIdx.y) * 2 * slots;
  float* const d_beta = d_gamma + slots;
  const int64_t lane = static_cast<int>(threadIdx.x) * kCount;
  constexpr int kStep = kWarp * kCount;
  const float share = 1.0f / static_cast<float>(width);
  for (int64_t c = lane; c < width; c += kStep) {
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) d_gamma[SumSlot<kCount>(c) + j * kWarp] = 0;
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) d_beta[SumSlot<kCount>(c) + j * kWarp] = 0;
  }
  const auto warps = static_cast<int64_t>(blockDim.y);
  for (int64_t row = blockIdx.x * warps + threadIdx.y; row < rows; row += gridDim.x * warps) {
    const int64_t first = row * width;
    const float average = mean[row];
    const float inverse = rstd[row];
    float sum = 0;
    float dot = 0;
    for (int64_t c = lane; c < width; c += kStep) {
      float d[kCount];
      float v[kCount];
      float g[kCount];
      Load(dy + first + c, d);
      Load(x + first + c, v);
      Load(gamma + c, g);
      RM_UNROLL
      for (int j = 0; j < kCount; ++j) {
        const float normal = (v[j] - average) * inverse;
        sum += d[j] * g[j];
        dot += d[j] * g[j] * normal;
        d_gamma[SumSlot<kCount>(c) + j * kWarp] += d[j] * normal;
        d_beta[SumSlot<kCount>(c) + j * kWarp] += d[j];
      }
    }
    const float sum_mean = WarpSum(sum) * share;
    const float dot_mean = WarpSum(dot) * share;
    for (int64_t c = lane; c < width; c += kStep) {
      float d[kCount];
      float v[kCount];
      float g[kCount];
      float to[kCount] = {};
      Load(dy + first + c, d);
      Load(x + first + c, v);
      Load(gamma + c, g);
      if (accumulate) Load(dx + first + c, to);
      RM_UNROLL
      for (int j = 0; j < kCount; ++j) {
        const float normal = (v[j] - average) * inverse;
        to[j] += (d[j] * g[j] - sum_mean - normal * dot_mean) * inverse;
      }
      Store(dx + first + c, to);
    }
  }
  __syncthreads();
  const int64_t threads = warps * kWarp;
  for (int64_t i = threadIdx.y * kWarp + threadIdx.x; i < 2 * width; i += threads) {
    const int64_t slot = i < width ? SumSlot<kCount>(i) : slots + SumSlot<kCount>(i - width);
    float total = 0;
    for (int64_t w = 0; w < warps; ++w) total += sums[w * 2 * slots + slot];
    partial[blockIdx.x * 2 * width + i] = total;
  }
}

// Returns the number of blocks of the kernel above. It determines the order of the sums, so it depends on
// the shape only.
constexpr int64_t kRowsPerNormBlock = 64;
constexpr int64_t kMostNormBlocks = 256;
int64_t NormBlocks(int64_t rows) {
  const int64_t blocks = (rows + kRowsPerNormBlock - 1) / kRowsPerNormBlock;
  return blocks < 1 ? 1 : blocks < kMostNormBlocks ? blocks : kMostNormBlocks;
}
// Returns the warps per block, few enough that several blocks fit on a multiprocessor.
int NormBackwardWarps(int64_t width) {
  constexpr int64_t kRoom = 48 * 1024 / static_cast<int64_t>(sizeof(float));
  int warps = kNormWarps;
  while (warps > 1 && warps * 2 * SumSlots(width) > kRoom) warps /= 2;
  return warps;
}

template <bool kResidual, class T>
void Forward(Stream stream, int64_t rows, int64_t width, const T* x, const float* gamma, const float* beta,
             T* out, float* mean, float* rstd, const T* residual, const T* add, const float* bias, T* sum) {
  const dim3 block(kWarp, kNormWarps);
  const unsigned blocks = Cover(rows, kNormWarps);
  if (Aligned(width, x, gamma, beta, out, residual, add, bias, sum)) {
    Launch(LayerNormForwardKernel<kPack, kResidual, T>, blocks, block, 0, stream, rows, width, x, gamma, beta,
           out, mean, rstd, residual, add, bias, sum);
  } else {
    Launch(LayerNormForwardKernel<1, kResidual, T>, blocks, block, 0, stream, rows, width, x, gamma, beta,
           out, mean, rstd, residual, add, bias, sum);
  }
}

}  // namespace

template <class T>
void LayerNormForward(Stream stream, int64_t rows, int64_t width, const T* x, const float* gamma,
                      const float* beta, T* out, float* mean, float* rstd) {
  const T* const none = nullptr;
  Forward<false>(stream, rows, width, x, gamma, beta, out, mean, rstd, none, none,
                 static_cast<const float*>(nullptr), static_cast<T*>(nullptr));
}

template <class T>
void ResidualLayerNormForward(Stream stream, int64_t rows, int64_t width, const T* residual, const T* add,
                              const float* bias, const float* gamma, const float* beta, T* sum, T* out,
                              float* mean, float* rstd) {
  Forward<true>(stream, rows, width, static_cast<const T*>(nullptr), gamma, beta, out, mean, rstd, residual,
                add, bias, sum);
}

int64_t LayerNormBackwardScratch(int64_t rows, int64_t width) {
  const int64_t blocks = NormBlocks(rows);
  return blocks * 2 * width + SumColumnsScratch(blocks, width);
}

template <class T>
void LayerNormBackward(Stream stream, int64_t rows, int64_t width, const T* dy, const T* x,
                       const float* gamma, const float* mean, const float* rstd, bool accumulate, T* dx,
                       float* d_gamma, float* d_beta, float* scratch) {
  const int64_t blocks = NormBlocks(rows);
  const dim3 block(kWarp, static_cast<unsigned>(NormBackwardWarps(width)));
  const size_t shared_bytes = block.y * 2 * static_cast<size_t>(SumSlots(width)) * sizeof(float);
  const auto kernel =
      Aligned(width, dy, x, gamma, dx) ? LayerNormBackwardKernel<kPack, T> : LayerNormBackwardKernel<1, T>;
  Launch(kernel, static_cast<unsigned>(blocks), block, shared_bytes, stream, rows, width, dy, x, gamma, mean,
         rstd, accumulate, dx, scratch);
  const float* const partial = scratch;
  float* const more = scratch + blocks * 2 * width;
  SumColumns(stream, blocks, width, 2 * width, partial, d_gamma, more);
  SumColumns(stream, blocks, width, 2 * width, partial + width, d_beta, more);
}

#define RM_INSTANTIATE(T)                                                                                    \
  template void LayerNormForward(Stream, int64_t, int64_t, const T*, const float*, const float*, T*, float*, \
                                 float*);                                                                    \
  template void ResidualLayerNormForward(Stream, int64_t, int64_t, const T*, const T*, const float*,         \
                                         const float*, const float*, T*, T*, float*, float*);                \
  template void LayerNormBackward(Stream, int64_t, int64_t, const T*, const T*, const float*, const float*,  \
                                  const float*, bool, T*, float*, float*, float*);
RM_INSTANTIATE(float)
RM_INSTANTIATE(Bf16)
#undef RM_INSTANTIATE

}  // namespace ringmaster::cuda::kernels
