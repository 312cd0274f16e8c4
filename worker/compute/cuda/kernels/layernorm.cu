// SPDX-License-Identifier: Apache-2.0

// One warp per row. Values that it reads twice come from the first-level cache the second time.
#include "worker/compute/cuda/kernels/layernorm.h"

#include <algorithm>

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

// Sums of a warp over its rows: lane l holds columns 256 k + 8 l of chunk k.
template <int kChunks>
using NarrowSums = float[kChunks][kPack];

// Adds the warps of a block in order, and writes a row of `partial`, shape (width).
template <int kChunks>
__device__ __forceinline__ void FoldWarps(const NarrowSums<kChunks>& sums, int64_t width, float* shared,
                                          float* partial) {
  constexpr int kColumns = kChunks * kWarp * kPack;
  __syncthreads();
  RM_UNROLL
  for (int k = 0; k < kChunks; ++k)
    Store(shared + threadIdx.y * kColumns + (k * kWarp + threadIdx.x) * kPack, sums[k]);
  __syncthreads();
  for (int64_t c = threadIdx.y * kWarp + threadIdx.x; c < width; c += kNormWarps * kWarp) {
    float total = 0;
    RM_UNROLL
    for (int w = 0; w < kNormWarps; ++w) total += shared[w * kColumns + c];
    partial[c] = total;
  }
}

// The same as above for narrow rows, whose sums stay in registers, and with the sums of dx: `partial` has
// shape (gridDim.x, 3, width), or (gridDim.x, 2, width) without kDxSums.
template <int kChunks, bool kDxSums, class T>
__global__ void __launch_bounds__(kWarp* kNormWarps, kChunks <= 3 ? 2 : 1)
    NarrowNormBackwardKernel(int64_t rows, int64_t width, const T* dy, const T* x, const float* gamma,
                             const float* mean, const float* rstd, bool accumulate, T* dx, float* partial) {
  RM_SHARED(float, shared, kNormWarps* kChunks* kWarp* kPack);
  NarrowSums<kChunks> d_gamma = {};
  NarrowSums<kChunks> d_beta = {};
  NarrowSums<kChunks> dx_sums = {};
  const float share = 1.0f / static_cast<float>(width);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kNormWarps;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kNormWarps + threadIdx.y; row < rows; row += step) {
    // All loads of a row are under way before the first use.
    Pack<T> dy_row[kChunks];
    Pack<T> x_row[kChunks];
    Pack<T> dx_row[kChunks];
    RM_UNROLL
    for (int k = 0; k < kChunks; ++k) {
      const int64_t c = (k * kWarp + static_cast<int>(threadIdx.x)) * kPack;
      if (c >= width) continue;
      dy_row[k] = LoadPack(dy + row * width + c);
      x_row[k] = LoadPack(x + row * width + c);
      if (accumulate) dx_row[k] = LoadPack(dx + row * width + c);
    }
    const float average = mean[row];
    const float inverse = rstd[row];
    float sum = 0;
    float dot = 0;
    RM_UNROLL
    for (int k = 0; k < kChunks; ++k) {
      const int64_t c = (k * kWarp + static_cast<int>(threadIdx.x)) * kPack;
      if (c >= width) continue;
      float d[kPack];
      float v[kPack];
      float g[kPack];
      Unpack(dy_row[k], d);
      Unpack(x_row[k], v);
      Load(gamma + c, g);
      RM_UNROLL
      for (int j = 0; j < kPack; ++j) {
        const float normal = (v[j] - average) * inverse;
        sum += d[j] * g[j];
        dot += d[j] * g[j] * normal;
        d_gamma[k][j] += d[j] * normal;
        d_beta[k][j] += d[j];
      }
    }
    const float sum_mean = WarpSum(sum) * share;
    const float dot_mean = WarpSum(dot) * share;
    RM_UNROLL
    for (int k = 0; k < kChunks; ++k) {
      const int64_t c = (k * kWarp + static_cast<int>(threadIdx.x)) * kPack;
      if (c >= width) continue;
      float d[kPack];
      float v[kPack];
      float g[kPack];
      float to[kPack] = {};
      Unpack(dy_row[k], d);
      Unpack(x_row[k], v);
      Load(gamma + c, g);
      if (accumulate) Unpack(dx_row[k], to);
      RM_UNROLL
      for (int j = 0; j < kPack; ++j) {
        const float normal = (v[j] - average) * inverse;
        to[j] += (d[j] * g[j] - sum_mean - normal * dot_mean) * inverse;
      }
      StoreRounded(dx + row * width + c, to);
      RM_UNROLL
      for (int j = 0; kDxSums && j < kPack; ++j) dx_sums[k][j] += to[j];
    }
  }
  float* const mine = partial + static_cast<int64_t>(blockIdx.x) * (kDxSums ? 3 : 2) * width;
  FoldWarps<kChunks>(d_gamma, width, shared, mine);
  FoldWarps<kChunks>(d_beta, width, shared, mine + width);
  if constexpr (kDxSums) FoldWarps<kChunks>(dx_sums, width, shared, mine + 2 * width);
}

constexpr int kFoldWarps = 32;

// to[a][c] = the sum over blocks of partial[block][a][c], shape (blocks, gridDim.y, width): its warps take
// blocks in turn, and their sums are added in order.
__global__ void FoldBlocksKernel(int64_t blocks, int64_t width, const float* partial, float* first,
                                 float* second, float* third) {
  RM_SHARED(float, shared, kFoldWarps* kWarp);
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const int64_t stride = gridDim.y * width;
  float total = 0;
  if (c < width) {
    for (int64_t b = threadIdx.y; b < blocks; b += kFoldWarps)
      total += partial[b * stride + blockIdx.y * width + c];
  }
  shared[threadIdx.y * kWarp + threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || c >= width) return;
  float sum = 0;
  RM_UNROLL
  for (int w = 0; w < kFoldWarps; ++w) sum += shared[w * kWarp + threadIdx.x];
  (blockIdx.y == 0 ? first : blockIdx.y == 1 ? second : third)[c] = sum;
}

// The largest width of the kernel above, whose sums are in registers.
constexpr int kMostChunks = 4;
constexpr int64_t kNarrowWidth = kMostChunks * kWarp * kPack;

template <bool kDxSums, class T>
auto NarrowKernel(int64_t width) {
  constexpr int64_t kChunk = kWarp * kPack;
  return width <= kChunk       ? NarrowNormBackwardKernel<1, kDxSums, T>
         : width <= 2 * kChunk ? NarrowNormBackwardKernel<2, kDxSums, T>
         : width <= 3 * kChunk ? NarrowNormBackwardKernel<3, kDxSums, T>
                               : NarrowNormBackwardKernel<kMostChunks, kDxSums, T>;
}

// Returns the number of blocks of both kernels. It determines the order of the sums, so it depends on the
// shape only.
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
  const int64_t wide = blocks * 2 * width + SumColumnsScratch(blocks, width);
  return std::max({wide, blocks * 3 * width, SumColumnsScratch(rows, width)});
}

template <class T>
void LayerNormBackward(Stream stream, int64_t rows, int64_t width, const T* dy, const T* x,
                       const float* gamma, const float* mean, const float* rstd, bool accumulate, T* dx,
                       float* d_gamma, float* d_beta, float* dx_sums, float* scratch) {
  const int64_t blocks = NormBlocks(rows);
  if (width <= kNarrowWidth && Aligned(width, dy, x, gamma, dx)) {
    const auto kernel = dx_sums != nullptr ? NarrowKernel<true, T>(width) : NarrowKernel<false, T>(width);
    Launch(kernel, static_cast<unsigned>(blocks), dim3(kWarp, kNormWarps), 0, stream, rows, width, dy, x,
           gamma, mean, rstd, accumulate, dx, scratch);
    Launch(FoldBlocksKernel, dim3(Cover(width, kWarp), dx_sums != nullptr ? 3 : 2), dim3(kWarp, kFoldWarps),
           0, stream, blocks, width, scratch, d_gamma, d_beta, dx_sums);
    return;
  }
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
  if (dx_sums != nullptr) SumColumns(stream, rows, width, width, static_cast<const T*>(dx), dx_sums, scratch);
}

#define RM_INSTANTIATE(T)                                                                                    \
  template void LayerNormForward(Stream, int64_t, int64_t, const T*, const float*, const float*, T*, float*, \
                                 float*);                                                                    \
  template void ResidualLayerNormForward(Stream, int64_t, int64_t, const T*, const T*, const float*,         \
                                         const float*, const float*, T*, T*, float*, float*);                \
  template void LayerNormBackward(Stream, int64_t, int64_t, const T*, const T*, const float*, const float*,  \
                                  const float*, bool, T*, float*, float*, float*, float*);
RM_INSTANTIATE(float)
RM_INSTANTIATE(Bf16)
#undef RM_INSTANTIATE

}  // namespace ringmaster::cuda::kernels
