// SPDX-License-Identifier: Apache-2.0

// One warp per chunk of kChunkRows rows. Each pass counts the digits of every chunk, turns the counts
// (ordered by digit, then chunk) into positions by a prefix sum, and moves the rows there.
#include "worker/compute/cuda/kernels/sort_rows.h"

#include "worker/compute/cuda/kernels/vector.h"
#include "worker/compute/cuda/kernels/warp.h"

namespace ringmaster::cuda::kernels {
namespace {

constexpr int kDigits = 256;
constexpr int kDigitBits = 8;
constexpr int kSortWarps = 4;
constexpr int kScanThreads = 1024;
constexpr int64_t kChunkRows = 512;

int64_t SortChunks(int64_t rows) { return (rows + kChunkRows - 1) / kChunkRows; }

// Visits the rows of this warp's chunk, 32 at a time: calls visit(active, row, digit, lanes with the same
// digit).
template <class Visit>
__device__ __forceinline__ void ForDigits(int64_t chunk, int64_t rows, const int32_t* keys,
                                          const int32_t* order, int shift, const Visit& visit) {
  for (int64_t s = 0; s < kChunkRows; s += kWarp) {
    const int64_t i = chunk * kChunkRows + s + threadIdx.x;
    const bool active = i < rows;
    const int32_t row = !active ? 0 : order != nullptr ? order[i] : static_cast<int32_t>(i);
    const uint32_t digit = active ? static_cast<uint32_t>(keys[row]) >> shift & (kDigits - 1) : kDigits;
    visit(active, row, digit, __match_any_sync(kAllLanes, digit));
    __syncwarp();
  }
}

// counts[digit * chunks + chunk]
__global__ void CountDigitsKernel(int64_t rows, int64_t chunks, const int32_t* keys, const int32_t* order,
                                  int shift, int32_t* counts) {
  RM_SHARED(int32_t, all, kSortWarps * kDigits);
  int32_t* const mine = all + threadIdx.y * kDigits;
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kSortWarps + threadIdx.y;
  if (chunk >= chunks) return;
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kWarp) mine[d] = 0;
  __syncwarp();
  ForDigits(chunk, rows, keys, order, shift, [&](bool active, int32_t, uint32_t digit, uint32_t same) {
    const uint32_t before = same & ((1U << threadIdx.x) - 1U);
    if (active && before == 0) mine[digit] += __popc(same);
  });
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kWarp) counts[d * chunks + chunk] = mine[d];
}

// Exclusive prefix sum of counts, in place. One block; every thread sums a contiguous range.
__global__ void ScanCountsKernel(int64_t n, int32_t* counts) {
  RM_SHARED(int32_t, warp_totals, kScanThreads / kWarp);
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const int64_t run = (n + kScanThreads - 1) / kScanThreads;
  const int64_t begin = thread * run < n ? thread * run : n;
  const int64_t end = begin + run < n ? begin + run : n;
  int32_t total = 0;
  for (int64_t i = begin; i < end; ++i) total += counts[i];
  int32_t upto = total;
  RM_UNROLL
  for (int step = 1; step < kWarp; step *= 2) {
    const int32_t other = __shfl_up_sync(kAllLanes, upto, static_cast<unsigned>(step));
    if (lane >= step) upto += other;
  }
  if (lane == kWarp - 1) warp_totals[warp] = upto;
  __syncthreads();
  int32_t before = upto - total;
  for (int w = 0; w < warp; ++w) before += warp_totals[w];
  for (int64_t i = begin; i < end; ++i) {
    const int32_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

__global__ void MoveRowsKernel(int64_t rows, int64_t chunks, const int32_t* keys, const int32_t* order,
                               int shift, const int32_t* places, int32_t* sorted) {
  RM_SHARED(int32_t, all, kSortWarps * kDigits);
  int32_t* const next = all + threadIdx.y * kDigits;
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kSortWarps + threadIdx.y;
  if (chunk >= chunks) return;
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kWarp) next[d] = places[d * chunks + chunk];
  __syncwarp();
  ForDigits(chunk, rows, keys, order, shift, [&](bool active, int32_t row, uint32_t digit, uint32_t same) {
    const uint32_t before = same & ((1U << threadIdx.x) - 1U);
    if (active) sorted[next[digit] + __popc(before)] = row;
    __syncwarp();
    if (active && before == 0) next[digit] += __popc(same);
  });
}

}  // namespace

int64_t SortRowsScratch(int64_t rows) { return 2 * rows + kDigits * SortChunks(rows); }

const int32_t* SortRows(Stream stream, int64_t rows, int64_t keys_end, const int32_t* keys,
                        int32_t* scratch) {
  int32_t* const buffers[2] = {scratch, scratch + rows};
  int32_t* const counts = scratch + 2 * rows;
  const int64_t chunks = SortChunks(rows);
  if (chunks == 0) return scratch;
  const dim3 block(kWarp, kSortWarps);
  const unsigned blocks = Cover(chunks, kSortWarps);
  const int32_t* order = nullptr;
  int turn = 0;
  for (int shift = 0; shift == 0 || (keys_end - 1) >> shift > 0; shift += kDigitBits, turn = 1 - turn) {
    Launch(CountDigitsKernel, blocks, block, 0, stream, rows, chunks, keys, order, shift, counts);
    Launch(ScanCountsKernel, 1, kScanThreads, 0, stream, kDigits * chunks, counts);
    Launch(MoveRowsKernel, blocks, block, 0, stream, rows, chunks, keys, order, shift, counts, buffers[turn]);
    order = buffers[turn];
  }
  return order;
}

}  // namespace ringmaster::cuda::kernels
