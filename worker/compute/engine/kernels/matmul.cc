// SPDX-License-Identifier: Apache-2.0

// The product as in Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): a
// block of A stays in the second-level cache, a panel of B as wide as a tile in the first-level cache, and a
// tile of C in registers.
#include "worker/compute/engine/kernels/matmul.h"

#include "worker/compute/engine/kernels/simd.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ringmaster::engine::kernels::RINGMASTER_ISA {
namespace {

// One register, and the tile whose sums fill most registers. Fma rounds once, on every instruction set.
#if defined(__AVX512F__)
typedef __m512 Vector;
constexpr int64_t kWidth = 16, kTallest = 8, kWidest = 3;
RM_INLINE Vector Zero() { return _mm512_setzero_ps(); }
RM_INLINE Vector Get(const float* from) { return _mm512_loadu_ps(from); }
RM_INLINE void Put(float* to, Vector v) { _mm512_storeu_ps(to, v); }
RM_INLINE Vector All(const float* from) { return _mm512_set1_ps(*from); }
RM_INLINE Vector Fma(Vector a, Vector b, Vector sum) { return _mm512_fmadd_ps(a, b, sum); }
RM_INLINE Vector Add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
#elif defined(__AVX2__)
typedef __m256 Vector;
constexpr int64_t kWidth = 8, kTallest = 4, kWidest = 3;
RM_INLINE Vector Zero() { return _mm256_setzero_ps(); }
RM_INLINE Vector Get(const float* from) { return _mm256_loadu_ps(from); }
RM_INLINE void Put(float* to, Vector v) { _mm256_storeu_ps(to, v); }
RM_INLINE Vector All(const float* from) { return _mm256_broadcast_ss(from); }
RM_INLINE Vector Fma(Vector a, Vector b, Vector sum) { return _mm256_fmadd_ps(a, b, sum); }
RM_INLINE Vector Add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
#elif defined(__aarch64__)
typedef float32x4_t Vector;
constexpr int64_t kWidth = 4, kTallest = 8, kWidest = 3;
RM_INLINE Vector Zero() { return vdupq_n_f32(0); }
RM_INLINE Vector Get(const float* from) { return vld1q_f32(from); }
RM_INLINE void Put(float* to, Vector v) { vst1q_f32(to, v); }
RM_INLINE Vector All(const float* from) { return vdupq_n_f32(*from); }
RM_INLINE Vector Fma(Vector a, Vector b, Vector sum) { return vfmaq_f32(sum, a, b); }
RM_INLINE Vector Add(Vector a, Vector b) { return vaddq_f32(a, b); }
#else
// Without an instruction for it, the C library computes a fused multiply-add: right, but slow.
typedef float Vector;
constexpr int64_t kWidth = 1, kTallest = 4, kWidest = 4;
RM_INLINE Vector Zero() { return 0; }
RM_INLINE Vector Get(const float* from) { return *from; }
RM_INLINE void Put(float* to, Vector v) { *to = v; }
RM_INLINE Vector All(const float* from) { return *from; }
RM_INLINE Vector Fma(Vector a, Vector b, Vector sum) { return __builtin_fmaf(a, b, sum); }
RM_INLINE Vector Add(Vector a, Vector b) { return a + b; }
#endif

constexpr int64_t kPanel = kWidest * kWidth;  // columns of a tile
static_assert(kPackedRows % kTallest == 0 && kPackedColumns % kPanel == 0);

RM_INLINE int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// Where a tile finds a(row, depth) = a[row * a_row + depth * a_depth] and b(depth, column) = b[depth *
// b_depth + column]: in a packed copy, or in the operand itself.
struct Strides {
  int64_t a_row, a_depth, b_depth;
};

// Memory that a tile loads into the cache for the next panel: `lines` of 64 bytes from `from` on.
struct Ahead {
  const float* from;
  int64_t lines;
};

// C = or C += the chain over `depth` for `kRows` rows and `kVectors` vectors.
template <int64_t kRows, int64_t kVectors>
void Tile(int64_t depth, const float* a, const float* b, const Strides& s, float* c, int64_t ldc, bool add,
          Ahead ahead) {
  Vector sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int64_t y = 0; y < kRows; ++y) {
    __builtin_prefetch(c + y * ldc, 1);
    __builtin_prefetch(c + y * ldc + kVectors * kWidth - 1, 1);
#pragma GCC unroll 4
    for (int64_t x = 0; x < kVectors; ++x) sums[y][x] = Zero();
  }
  for (int64_t line = 0; line < ahead.lines; ++line) __builtin_prefetch(ahead.from + 16 * line, 0, 2);
  const int64_t a_row = s.a_row, a_depth = s.a_depth, b_depth = s.b_depth;
  for (int64_t l = 0; l < depth; ++l, a += a_depth, b += b_depth) {
    Vector columns[kVectors];
#pragma GCC unroll 4
    for (int64_t x = 0; x < kVectors; ++x) columns[x] = Get(b + x * kWidth);
#pragma GCC unroll 8
    for (int64_t y = 0; y < kRows; ++y) {
      const Vector row = All(a + y * a_row);
#pragma GCC unroll 4
      for (int64_t x = 0; x < kVectors; ++x) sums[y][x] = Fma(row, columns[x], sums[y][x]);
    }
  }
#pragma GCC unroll 8
  for (int64_t y = 0; y < kRows; ++y)
#pragma GCC unroll 4
    for (int64_t x = 0; x < kVectors; ++x) {
      float* const to = c + y * ldc + x * kWidth;
      Put(to, add ? Add(Get(to), sums[y][x]) : sums[y][x]);
    }
}

typedef void TileFn(int64_t depth, const float* a, const float* b, const Strides& s, float* c, int64_t ldc,
                    bool add, Ahead ahead);

template <int64_t kVectors>
TileFn* TileOf(int64_t rows) {
  switch (rows) {
    case 1:
      return Tile<1, kVectors>;
    case 2:
      return Tile<2, kVectors>;
    case 3:
      return Tile<3, kVectors>;
    case 4:
      return Tile<4, kVectors>;
    default:
      break;
  }
  if constexpr (kTallest == 8) {
    switch (rows) {
      case 5:
        return Tile<5, kVectors>;
      case 6:
        return Tile<6, kVectors>;
      case 7:
        return Tile<7, kVectors>;
      default:
        return Tile<8, kVectors>;
    }
  }
  return nullptr;
}

TileFn* TileOf(int64_t rows, int64_t vectors) {
  switch (vectors) {
    case 1:
      return TileOf<1>(rows);
    case 2:
      return TileOf<2>(rows);
    case 3:
      return TileOf<3>(rows);
    default:
      return TileOf<kWidest>(rows);
  }
}

#if defined(__AVX2__)
// Transposes eight rows of eight floats with a stride of `ld` into rows with a stride of `to_ld`.
RM_INLINE void TransposeEight(const float* from, int64_t ld, float* to, int64_t to_ld) {
  __m256 in[8], pairs[8], quads[8];
  for (int i = 0; i < 8; ++i) in[i] = _mm256_loadu_ps(from + i * ld);
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm256_unpacklo_ps(in[2 * i], in[2 * i + 1]);
    pairs[2 * i + 1] = _mm256_unpackhi_ps(in[2 * i], in[2 * i + 1]);
  }
  for (int half = 0; half < 8; half += 4) {
    quads[half] = _mm256_shuffle_ps(pairs[half], pairs[half + 2], 0x44);
    quads[half + 1] = _mm256_shuffle_ps(pairs[half], pairs[half + 2], 0xEE);
    quads[half + 2] = _mm256_shuffle_ps(pairs[half + 1], pairs[half + 3], 0x44);
    quads[half + 3] = _mm256_shuffle_ps(pairs[half + 1], pairs[half + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_ld, _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_ld, _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31));
  }
}
#endif

// Packs `count` rows of A or columns of B over `depth` into strips of `kSide`: strip[l * kSide + x]. Element
// (x, l) is from[x * ld + l] if `deep`, else from[l * ld + x]. Strips are padded with zeros.
template <int64_t kSide>
void Pack(const float* from, int64_t ld, bool deep, int64_t depth, int64_t count, float* to) {
  if (!deep) {
    // A few rows of the operand at a time, each read from end to end.
    constexpr int64_t kRows = 8;
    for (int64_t first = 0; first < depth; first += kRows) {
      const int64_t rows = Least(kRows, depth - first);
      for (int64_t x = 0; x < count; x += kSide) {
        float* strip = to + x * depth + first * kSide;
        const float* row = from + first * ld + x;
        const int64_t side = Least(kSide, count - x);
        for (int64_t l = 0; l < rows; ++l, row += ld, strip += kSide) {
          if (side == kSide) {
            if (first + kRows < depth) __builtin_prefetch(row + kRows * ld);
            __builtin_memcpy(strip, row, kSide * 4);
          } else {
            for (int64_t i = 0; i < kSide; ++i) strip[i] = i < side ? row[i] : 0.0f;
          }
        }
      }
    }
    return;
  }
  for (int64_t first = 0; first < count; first += kSide, to += kSide * depth) {
    const int64_t side = Least(kSide, count - first);
    const float* const row = from + first * ld;
    int64_t l = 0;
#if defined(__AVX2__)
    if constexpr (kSide % 8 == 0) {
      for (; side == kSide && l + 8 <= depth; l += 8)
        for (int64_t x = 0; x < kSide; x += 8)
          TransposeEight(row + x * ld + l, ld, to + l * kSide + x, kSide);
    }
#endif
    for (; l < depth; ++l)
      for (int64_t x = 0; x < kSide; ++x) to[l * kSide + x] = x < side ? row[x * ld + l] : 0.0f;
  }
}

// An operand is read in place where a packed copy would be read too few times to pay off.
bool ReadsAInPlace(const MatmulArgs& p) { return p.n <= 4 * kPanel; }
bool ReadsBInPlace(const MatmulArgs& p) { return !p.b.transposed && p.m <= 64; }

// The tiles of `rows` rows and `columns` columns of C: a and b are at its first row and column. `b_panel`:
// elements between panels of B.
void Block(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_strip, const float* b,
           int64_t b_panel, const Strides& s, float* c, int64_t ldc, bool add) {
  float edge[kTallest * kPanel];
  for (int64_t column = 0; column < columns; column += kPanel, b += b_panel) {
    const int64_t wide = Least(kPanel, columns - column);
    const int64_t vectors = (wide + kWidth - 1) / kWidth;
    const bool whole = vectors * kWidth == wide;
    // Each tile of this panel loads a part of the next panel, if it is packed.
    const int64_t tiles = (rows + kTallest - 1) / kTallest;
    const int64_t lines =
        s.b_depth == kPanel && column + kPanel < columns ? (depth * kPanel / 16 + tiles - 1) / tiles : 0;
    const float* next = b + b_panel;
    for (int64_t row = 0; row < rows; row += kTallest) {
      const int64_t tall = Least(kTallest, rows - row);
      const float* const strip = a + row / kTallest * a_strip;
      float* const to = c + row * ldc + column;
      TileFn* const tile = TileOf(tall, vectors);
      const Ahead ahead{next, lines};
      next += 16 * lines;
      if (whole) {
        tile(depth, strip, b, s, to, ldc, add, ahead);
        continue;
      }
      tile(depth, strip, b, s, edge, kPanel, false, ahead);
      for (int64_t y = 0; y < tall; ++y)
        for (int64_t x = 0; x < wide; ++x) {
          const float sum = edge[y * kPanel + x];
          to[y * ldc + x] = add ? to[y * ldc + x] + sum : sum;
        }
    }
  }
}

}  // namespace

void MatmulFp32(const MatmulArgs& p, float* scratch) {
  if (p.k == 0 && !p.accumulate)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) p.c[i * p.ldc + j] = 0;
  float* const packed_b = scratch;
  float* const packed_a = packed_b + kPackedColumns * kMatmulBlock;
  const bool a_in_place = ReadsAInPlace(p);
  const bool b_in_place = ReadsBInPlace(p);
  for (int64_t column = 0; column < p.n; column += kPackedColumns) {
    const int64_t columns = Least(kPackedColumns, p.n - column);
    // Columns that do not fill their last vector are packed, because a vector would read beyond them.
    const int64_t placed = b_in_place ? columns / kWidth * kWidth : 0;
    for (int64_t depth = 0; depth < p.k; depth += kMatmulBlock) {
      const int64_t deep = Least(kMatmulBlock, p.k - depth);
      const bool add = p.accumulate || depth > 0;
      if (placed < columns)
        Pack<kPanel>(p.b.At(depth, column + placed), p.b.ld, p.b.transposed, deep, columns - placed,
                     packed_b);
      for (int64_t row = 0; row < p.m; row += kPackedRows) {
        const int64_t rows = Least(kPackedRows, p.m - row);
        const float* a = p.a.At(row, depth);
        Strides s{p.a.transposed ? 1 : p.a.ld, p.a.transposed ? p.a.ld : 1, kPanel};
        int64_t a_strip = kTallest * s.a_row;
        if (!a_in_place) {
          Pack<kTallest>(a, p.a.ld, !p.a.transposed, deep, rows, packed_a);
          a = packed_a;
          s = {1, kTallest, kPanel};
          a_strip = kTallest * deep;
        }
        float* const c = p.c + row * p.ldc + column;
        if (placed > 0)
          Block(rows, placed, deep, a, a_strip, p.b.At(depth, column), kPanel, {s.a_row, s.a_depth, p.b.ld},
                c, p.ldc, add);
        if (placed < columns)
          Block(rows, columns - placed, deep, a, a_strip, packed_b, kPanel * deep, s, c + placed, p.ldc, add);
      }
    }
  }
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
