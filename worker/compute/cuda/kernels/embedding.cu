// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/cuda/kernels/embedding.h"

#include "worker/compute/cuda/kernels/elementwise.h"
#include "worker/compute/cuda/kernels/sort_rows.h"

namespace ringmaster::cuda::kernels {
namespace {

constexpr int kEmbeddingWarps = 8;

// One warp per row.
template <int kCount, class T>
__global__ void EmbeddingForwardKernel(int64_t rows, int64_t width, int64_t context, const int32_t* tokens,
                                       const float* table, const float* positions, T* out) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kEmbeddingWarps + threadIdx.y;
  if (row >= rows) return;
  const float* const token = table + tokens[row] * width;
  const float* const position = positions + row % context * width;
  for (int64_t c = static_cast<int>(threadIdx.x) * kCount; c < width; c += kWarp * kCount) {
    float v[kCount];
    float p[kCount];
    Load(token + c, v);
    Load(position + c, p);
    RM_UNROLL
    for (int j = 0; j < kCount; ++j) v[j] += p[j];
    Store(out + row * width + c, v);
  }
}

// One warp per position in the sorted rows and per 32 packs of columns. The warps at the first row of a
// token add all rows of that token. Row numbers are read 32 at a time, so that loads of the rows overlap.
template <int kCount, class T>
__global__ void EmbeddingBackwardKernel(int64_t rows, int64_t width, const int32_t* tokens,
                                        const int32_t* sorted, const T* d, float* table) {
  const int64_t place = static_cast<int64_t>(blockIdx.x) * kEmbeddingWarps + threadIdx.y;
  if (place >= rows) return;
  const int32_t token = tokens[sorted[place]];
  if (place > 0 && tokens[sorted[place - 1]] == token) return;
  const auto lane = static_cast<int>(threadIdx.x);
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kWarp + lane) * kCount;
  const bool inside = column < width;
  float sum[kCount] = {};
  if (inside) Load(table + token * width + column, sum);
  int found = kWarp;
  for (int64_t from = place; found == kWarp; from += kWarp) {
    const int32_t row = from + lane < rows ? sorted[from + lane] : -1;
    const bool mine = row >= 0 && tokens[row] == token;
    found = __popc(__ballot_sync(kAllLanes, mine));  // the rows are sorted, so these are the first ones
    for (int i = 0; i < found; ++i) {
      const int64_t r = __shfl_sync(kAllLanes, row, i);
      if (!inside) continue;
      float v[kCount];
      Load(d + r * width + column, v);
      RM_UNROLL
      for (int j = 0; j < kCount; ++j) sum[j] += v[j];
    }
  }
  if (inside) Store(table + token * width + column, sum);
}

template <class T>
struct PositionSum {
  int64_t samples;
  int64_t stride;  // elements between samples
  const T* d;
  float* positions;
  template <int kCount>
  __device__ void At(int64_t i) const {
    float sum[kCount] = {};
    for (int64_t s = 0; s < samples; ++s) {
      float v[kCount];
      Load(d + s * stride + i, v);
      RM_UNROLL
      for (int j = 0; j < kCount; ++j) sum[j] += v[j];
    }
    Store(positions + i, sum);
  }
};

}  // namespace

template <class T>
void EmbeddingForward(Stream stream, int64_t rows, int64_t width, int64_t context, const int32_t* tokens,
                      const float* table, const float* positions, T* out) {
  const auto kernel =
      Aligned(width, table, positions, out) ? EmbeddingForwardKernel<kPack, T> : EmbeddingForwardKernel<1, T>;
  Launch(kernel, Cover(rows, kEmbeddingWarps), dim3(kWarp, kEmbeddingWarps), 0, stream, rows, width, context,
         tokens, table, positions, out);
}

int64_t EmbeddingBackwardScratch(int64_t rows) { return SortRowsScratch(rows); }

template <class T>
void EmbeddingBackward(Stream stream, int64_t rows, int64_t width, int64_t vocabulary, const int32_t* tokens,
                       const T* d, float* table, int32_t* scratch) {
  const int32_t* const sorted = SortRows(stream, rows, vocabulary, tokens, scratch);
  const dim3 block(kWarp, kEmbeddingWarps);
  const unsigned places = Cover(rows, kEmbeddingWarps);
  if (Aligned(width, d, table)) {
    Launch(EmbeddingBackwardKernel<kPack, T>, dim3(places, Cover(width, kWarp * kPack)), block, 0, stream,
           rows, width, tokens, sorted, d, table);
  } else {
    Launch(EmbeddingBackwardKernel<1, T>, dim3(places, Cover(width, kWarp)), block, 0, stream, rows, width,
           tokens, sorted, d, table);
  }
}

template <class T>
void PositionBackward(Stream stream, int64_t samples, int64_t context, int64_t width, const T* d,
                      float* positions) {
  const int64_t n = context * width;
  ForElements(stream, n, Aligned(n, d, positions), PositionSum<T>{samples, n, d, positions});
}

#define RM_INSTANTIATE(T)                                                                              \
  template void EmbeddingForward(Stream, int64_t, int64_t, int64_t, const int32_t*, const float*,      \
                                 const float*, T*);                                                    \
  template void EmbeddingBackward(Stream, int64_t, int64_t, int64_t, const int32_t*, const T*, float*, \
                                  int32_t*);                                                           \
  template void PositionBackward(Stream, int64_t, int64_t, int64_t, const T*, float*);
RM_INSTANTIATE(float)
RM_INSTANTIATE(Bf16)
#undef RM_INSTANTIATE

}  // namespace ringmaster::cuda::kernels
