// SPDX-License-Identifier: Apache-2.0

// One block per row. The first pass computes the largest logit and the sum of exponentials together (online
// softmax, Milakov and Gimelshein 2018); the second one writes the gradient. A row that fits is kept in
// shared memory in between.
#include "worker/compute/cuda/kernels/cross_entropy.h"

#include "worker/compute/cuda/kernels/vector.h"
#include "worker/compute/cuda/kernels/warp.h"

namespace ringmaster::cuda::kernels {
namespace {

constexpr float kLowest = -3.4e38f;
// Of a row that is kept: sm_86 has the least shared memory per block, 99 KiB, of which other arrays need
// some.
constexpr int64_t kMostKeptBytes = 99 * 1024 - 512;
constexpr int kMostWarps = 16;
// Loads of a thread that are under way before the first one is used.
constexpr int kAhead = 4;
constexpr int64_t kClassesPerWarp = 512;

// The state of the online softmax: the largest logit, its first index, and the sum of exp(x - top).
struct Partial {
  float top = kLowest;
  float sum = 0;
  int64_t at = INT64_MAX;
};

// Merges the state of another part of the row. Exponentials are computed as powers of two: 2^(a x - a top)
// with a = log2(e), one instruction each.
__device__ __forceinline__ void Merge(Partial* into, const Partial& other) {
  const float top = into->top > other.top ? into->top : other.top;
  into->sum =
      into->sum * FastExp2((into->top - top) * kLog2e) + other.sum * FastExp2((other.top - top) * kLog2e);
  if (other.top > into->top || (other.top == into->top && other.at < into->at)) into->at = other.at;
  into->top = top;
}

// Adds `count` logits from class `first` on. Most packs have no new largest logit.
template <int kCount>
__device__ __forceinline__ void Add(Partial* into, const float (&v)[kCount], int64_t first, int count) {
  float top = kLowest;
  RM_UNROLL
  for (int j = 0; j < kCount; ++j) top = j < count && v[j] > top ? v[j] : top;
  if (top > into->top) {
    into->sum *= FastExp2((into->top - top) * kLog2e);
    into->top = top;
    int at = kCount - 1;
    RM_UNROLL
    for (int j = kCount - 1; j >= 0; --j) at = j < count && v[j] == top ? j : at;
    into->at = first + at;
  }
  const float shift = into->top * kLog2e;
  RM_UNROLL
  for (int j = 0; j < kCount; ++j) into->sum += j < count ? FastExp2(fmaf(v[j], kLog2e, -shift)) : 0.0f;
}

template <int kCount, bool kGradient, bool kKeeps, class T>
__global__ void CrossEntropyKernel(int64_t classes, int64_t stride, T* logits, const int32_t* targets,
                                   const float* weights, float* losses, uint8_t* hits) {
  RM_SHARED(float, tops, kMostWarps);
  RM_SHARED(float, sums, kMostWarps);
  RM_SHARED(int64_t, places, kMostWarps);
  RM_DYNAMIC_SHARED(T, kept);
  const int64_t row = blockIdx.x;
  T* const x = logits + row * stride;
  const int32_t target = targets[row];
  const auto threads = static_cast<int>(blockDim.x * blockDim.y);
  const int thread = static_cast<int>(threadIdx.y * kWarp + threadIdx.x);
  const int64_t first = static_cast<int64_t>(thread) * kCount;
  const int64_t step = static_cast<int64_t>(threads) * kCount;
  if (target < 0) {  // the same for the whole block
    if (thread == 0) {
      losses[row] = 0;
      hits[row] = 0;
    }
    if constexpr (kGradient) {
      const float zeros[kCount] = {};
      for (int64_t c = first; c < stride; c += step) Store(x + c, zeros);
    }
    return;
  }
  Partial mine;
  const auto take = [&](const float(&v)[kCount], int64_t c, int count) {
    if constexpr (kKeeps) Store(kept + c, v);  // exact: the numbers were of type T
    Add(&mine, v, c, count);
  };
  int64_t at = first;
  if constexpr (kCount == kPack) {
    for (; at + (kAhead - 1) * step + kCount <= classes; at += kAhead * step) {
      Pack<T> packs[kAhead];
      RM_UNROLL
      for (int i = 0; i < kAhead; ++i) packs[i] = LoadPack(x + at + i * step);
      RM_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        float v[kCount];
        Unpack(packs[i], v);
        take(v, at + i * step, kCount);
      }
    }
  }
  for (; at < classes; at += step) {
    float v[kCount];
    Load(x + at, v);
    take(v, at, static_cast<int>(classes - at < kCount ? classes - at : kCount));
  }
  RM_UNROLL
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    Partial other;
    other.top = __shfl_xor_sync(kAllLanes, mine.top, lanes);
    other.sum = __shfl_xor_sync(kAllLanes, mine.sum, lanes);
    other.at = __shfl_xor_sync(kAllLanes, mine.at, lanes);
    Merge(&mine, other);
  }
  if (threadIdx.x == 0) {
    tops[threadIdx.y] = mine.top;
    sums[threadIdx.y] = mine.sum;
    places[threadIdx.y] = mine.at;
  }
  const float margin_of = ToFloat(x[target]);  // before a thread overwrites it
  __syncthreads();
  Partial all;
  for (unsigned w = 0; w < blockDim.y; ++w) Merge(&all, {tops[w], sums[w], places[w]});
  if (thread == 0) {
    losses[row] = logf(all.sum) + (all.top - margin_of);
    hits[row] = all.at == target ? 1 : 0;
  }
  if constexpr (kGradient) {
    const float weight = weights[row];
    const float factor = weight / all.sum;
    const float shift = all.top * kLog2e;
    const int64_t target_pack = target / kCount * kCount;
    for (int64_t c = first; c < stride; c += step) {
      float v[kCount] = {};
      if (c < classes) {
        if (kKeeps) {
          Load(kept + c, v);  // what this thread has kept
        } else {
          Load(x + c, v);
        }
        RM_UNROLL
        for (int j = 0; j < kCount; ++j) v[j] = FastExp2(fmaf(v[j], kLog2e, -shift)) * factor;
        if (c == target_pack) {
          RM_UNROLL
          for (int j = 0; j < kCount; ++j) v[j] -= c + j == target ? weight : 0.0f;
        }
        if (c + kCount > classes) {
          RM_UNROLL
          for (int j = 0; j < kCount; ++j) v[j] = c + j >= classes ? 0.0f : v[j];
        }
      }
      Store(x + c, v);
    }
  }
}

template <bool kGradient, class T>
void LaunchCrossEntropy(Stream stream, int64_t rows, int64_t classes, int64_t stride, T* logits,
                        const int32_t* targets, const float* weights, float* losses, uint8_t* hits) {
  unsigned warps = 1;
  while (warps < kMostWarps && warps * kClassesPerWarp < classes) warps *= 2;
  const auto bytes = stride * static_cast<int64_t>(sizeof(T));
  const bool keeps = kGradient && Aligned(stride, logits) && bytes <= kMostKeptBytes;
  const auto kernel = keeps                     ? CrossEntropyKernel<kPack, kGradient, kGradient, T>
                      : Aligned(stride, logits) ? CrossEntropyKernel<kPack, kGradient, false, T>
                                                : CrossEntropyKernel<1, kGradient, false, T>;
  Launch(kernel, static_cast<unsigned>(rows), dim3(kWarp, warps), keeps ? static_cast<size_t>(bytes) : 0,
         stream, classes, stride, logits, targets, weights, losses, hits);
}

constexpr int kSampleWarps = 8;

// Returns the number of targets of a sample that are not ignored, in every lane.
__device__ __forceinline__ int64_t Counted(int64_t rows, const int32_t* targets) {
  int64_t counted = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kWarp) counted += targets[r] >= 0 ? 1 : 0;
  return WarpSum(counted);
}

// One warp per sample.
__global__ void RowWeightsKernel(int64_t samples, int64_t rows, const int32_t* targets, float* weights) {
  const int64_t sample = static_cast<int64_t>(blockIdx.x) * kSampleWarps + threadIdx.y;
  if (sample >= samples) return;
  const int64_t counted = Counted(rows, targets + sample * rows);
  const float weight = counted == 0 ? 0.0f : __double2float_rn(__ddiv_rn(1.0, static_cast<double>(counted)));
  for (int64_t r = threadIdx.x; r < rows; r += kWarp) weights[sample * rows + r] = weight;
}

// One block: one warp per sample, then one thread over all samples.
__global__ void SumLossesKernel(int64_t samples, int64_t rows, const float* losses, const uint8_t* hits,
                                const int32_t* targets, LossSums* per_sample, LossSums* sums) {
  for (int64_t sample = threadIdx.y; sample < samples; sample += blockDim.y) {
    double loss = 0;
    int64_t correct = 0;
    const int64_t counted = Counted(rows, targets + sample * rows);
    for (int64_t r = threadIdx.x; r < rows; r += kWarp) {
      if (targets[sample * rows + r] < 0) continue;
      loss += static_cast<double>(losses[sample * rows + r]);
      correct += hits[sample * rows + r];
    }
    loss = WarpSum(loss);
    correct = WarpSum(correct);
    if (threadIdx.x == 0) {
      per_sample[sample].loss = counted == 0 ? 0.0 : loss / static_cast<double>(counted);
      per_sample[sample].correct = correct;
      per_sample[sample].predictions = counted;
    }
  }
  __syncthreads();
  if (threadIdx.x != 0 || threadIdx.y != 0) return;
  double loss = 0;
  int64_t correct = 0;
  int64_t predictions = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    loss += per_sample[sample].loss;
    correct += per_sample[sample].correct;
    predictions += per_sample[sample].predictions;
  }
  sums->loss = loss;
  sums->correct = correct;
  sums->predictions = predictions;
}

}  // namespace

template <class T>
void CrossEntropy(Stream stream, int64_t rows, int64_t classes, int64_t stride, const T* logits,
                  const int32_t* targets, float* losses, uint8_t* hits) {
  // Without the gradient the kernel does not write to logits.
  LaunchCrossEntropy<false>(stream, rows, classes, stride, const_cast<T*>(logits), targets,
                            static_cast<const float*>(nullptr), losses, hits);
}

template <class T>
void CrossEntropyGradient(Stream stream, int64_t rows, int64_t classes, int64_t stride, T* logits,
                          const int32_t* targets, const float* weights, float* losses, uint8_t* hits) {
  LaunchCrossEntropy<true>(stream, rows, classes, stride, logits, targets, weights, losses, hits);
}

void RowWeights(Stream stream, int64_t samples, int64_t rows_per_sample, const int32_t* targets,
                float* weights) {
  Launch(RowWeightsKernel, Cover(samples, kSampleWarps), dim3(kWarp, kSampleWarps), 0, stream, samples,
         rows_per_sample, targets, weights);
}

void SumLosses(Stream stream, int64_t samples, int64_t rows_per_sample, const float* losses,
               const uint8_t* hits, const int32_t* targets, LossSums* per_sample, LossSums* sums) {
  constexpr int kWarps = 16;
  Launch(SumLossesKernel, 1, dim3(kWarp, kWarps), 0, stream, samples, rows_per_sample, losses, hits, targets,
         per_sample, sums);
}

#define RM_INSTANTIATE(T)                                                                                    \
  template void CrossEntropy(Stream, int64_t, int64_t, int64_t, const T*, const int32_t*, float*, uint8_t*); \
  template void CrossEntropyGradient(Stream, int64_t, int64_t, int64_t, T*, const int32_t*, const float*,    \
                                     float*, uint8_t*);
RM_INSTANTIATE(float)
RM_INSTANTIATE(Bf16)
#undef RM_INSTANTIATE

}  // namespace ringmaster::cuda::kernels
