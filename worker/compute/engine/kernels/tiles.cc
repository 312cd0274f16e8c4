// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/tiles.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/compute/engine/kernels/pack.h"

namespace ringmaster::engine::kernels {
namespace {

#define RM_INLINE inline __attribute__((always_inline))

constexpr int64_t kTileColumns = 32;  // of a block of two by two tiles
constexpr int64_t kVector = 16;
constexpr int64_t kPartDepth = 256;
constexpr int64_t kHalfRows = kTileRows / 2;

// All eight tiles have 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Prefetches a matrix, a few cache lines per step.
struct Prefetcher {
  static constexpr int64_t kLine = 16;
  const float* row;
  int64_t column = 0;
  int64_t rows_left;
  int64_t columns;
  int64_t ld;
  int64_t lines_per_step;

  RM_INLINE void Step() {
    for (int64_t line = 0; line < lines_per_step && rows_left > 0; ++line) {
      _mm_prefetch(row + column, _MM_HINT_T1);
      column += kLine;
      if (column < columns) continue;
      column = 0;
      row += ld;
      --rows_left;
    }
  }
};

// Returns a prefetcher whose lines per step are such that all lines are requested by the end of the product.
Prefetcher MakePrefetcher(const TileMatmulArgs& p) {
  const PrefetchRegion& a = p.ahead;
  const int64_t lines = a.rows * ((a.columns + Prefetcher::kLine - 1) / Prefetcher::kLine);
  const int64_t blocks =
      (p.rows + kTileRows - 1) / kTileRows * ((p.columns + kStripColumns - 1) / kStripColumns) * 2;
  const int64_t steps = blocks * (p.depth / kStripDepth);
  return {.row = a.data,
          .rows_left = a.rows,
          .columns = a.columns,
          .ld = a.ld,
          .lines_per_step = (lines + steps - 1) / steps};
}

// Computes one block. Tiles 0 to 3 hold its sums, 4 and 5 rows of a, 6 and 7 columns of b.
RM_INLINE void MultiplyBlock(int64_t depth, const uint16_t* a, int64_t lda, const uint16_t* b,
                             const float* sums, int64_t lds, float* out, int64_t ldo,
                             Prefetcher& prefetcher) {
  if (sums == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, lds * 4);
    _tile_loadd(1, sums + kVector, lds * 4);
    _tile_loadd(2, sums + kHalfRows * lds, lds * 4);
    _tile_loadd(3, sums + kHalfRows * lds + kVector, lds * 4);
  }
  const uint16_t* const below = a + kHalfRows * lda;
  constexpr int64_t kPairBytes = kStripColumns * 4;
  for (int64_t k = 0; k < depth; k += kStripDepth, b += kStripDepth * kStripColumns) {
    _tile_loadd(6, b, kPairBytes);
    _tile_loadd(4, a + k, lda * 2);
    _tile_loadd(7, b + 2 * kVector, kPairBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, below + k, lda * 2);
    _tile_dpbf16ps(1, 4, 7);
    prefetcher.Step();
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, ldo * 4);
  _tile_stored(1, out + kVector, ldo * 4);
  _tile_stored(2, out + kHalfRows * ldo, ldo * 4);
  _tile_stored(3, out + kHalfRows * ldo + kVector, ldo * 4);
}

// Applies the epilogue to a row of finished sums, at most one strip wide, and stores it.
RM_INLINE void StoreRow(const float* sums, int64_t count, const float* bias, const float* residual,
                        bool stream, float* to) {
  const auto some = [&](int64_t i, int64_t n) {
    const auto lanes = static_cast<__mmask16>((1u << n) - 1);
    __m512 value = _mm512_maskz_loadu_ps(lanes, sums + i);
    if (bias != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(lanes, bias + i));
    if (residual != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(lanes, residual + i));
    return value;
  };
  const auto put = [&](int64_t i, int64_t n) {
    _mm512_mask_storeu_ps(to + i, static_cast<__mmask16>((1u << n) - 1), some(i, n));
  };
  int64_t i = 0;
  if (stream) {  // whole cache lines only
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) / sizeof(float) % kVector);
    i = past == 0 ? 0 : kVector - past;
    if (i > count) i = count;
    if (i > 0) put(0, i);
    for (; i + kVector <= count; i += kVector) _mm512_stream_ps(to + i, some(i, kVector));
  }
  for (; i + kVector <= count; i += kVector) put(i, kVector);
  if (i < count) put(i, count - i);
}

}  // namespace

bool HasTiles() {
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  constexpr unsigned kSavedTiles = 3u << 17;         // bits of XCR0: tile configuration and tile data
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16) == 0 || (d & kTile) == 0) return false;
  constexpr unsigned kVectorBf16 = 1u << 5;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & kVectorBf16) == 0) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kSavedTiles) != kSavedTiles) return false;
  return ::syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

void MultiplyTiles(const TileMatmulArgs& p) {
  const TileConfig config;
  _tile_loadconfig(&config);
  Prefetcher prefetcher = MakePrefetcher(p);
  // The outer loop is over rows, so that long parts of a row of c are written one after the other. The next
  // one is over parts of the depth, so that these rows of a stay in the first-level cache while all of b is
  // read.
  alignas(64) float own[kTileRows * kMostColumns];
  for (int64_t row = 0; row < p.rows; row += kTileRows) {
    const int64_t rows = p.rows - row < kTileRows ? p.rows - row : kTileRows;
    float* const sums = p.sums == nullptr ? own : p.sums + row * p.lds;
    const int64_t lds = p.sums == nullptr ? kMostColumns : p.lds;
    for (int64_t k = 0; k < p.depth; k += kPartDepth) {
      const int64_t depth = p.depth - k < kPartDepth ? p.depth - k : kPartDepth;
      const bool finishes = p.last && k + depth == p.depth;
      for (int64_t column = 0; column < p.columns; column += kStripColumns) {
        alignas(64) float finished[kTileRows * kStripColumns];
        const uint16_t* const strip = p.strips + column / kStripColumns * p.stride + k * kStripColumns;
        for (int64_t half = 0; half < kStripColumns; half += kTileColumns) {
          float* const to = sums + column + half;
          MultiplyBlock(depth, p.a + row * p.lda + k, p.lda, strip + 2 * half,
                        p.first && k == 0 ? nullptr : to, lds, finishes ? finished + half : to,
                        finishes ? kStripColumns : lds, prefetcher);
        }
        if (!finishes) continue;
        const int64_t columns = p.columns - column < kStripColumns ? p.columns - column : kStripColumns;
        for (int64_t r = 0; r < rows; ++r)
          StoreRow(finished + r * kStripColumns, columns, p.bias == nullptr ? nullptr : p.bias + column,
                   p.residual == nullptr ? nullptr : p.residual + (row + r) * p.ldr + column, p.stream,
                   p.c + (row + r) * p.ldc + column);
      }
    }
  }
  _tile_release();
  if (p.stream) _mm_sfence();
}

}  // namespace ringmaster::engine::kernels

#endif
