// SPDX-License-Identifier: Apache-2.0

#include "worker/compute/engine/kernels/pack.h"

#include "worker/compute/engine/kernels/simd.h"

namespace ringmaster::engine::kernels::RINGMASTER_ISA {
namespace {

// Sixteen words. A word holds two bfloat16 values that are neighbours along the depth, the first one in the
// lower half.
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

constexpr int64_t kWords = 16;
// Prefetch distance; the hardware prefetcher does not cross a page.
constexpr int64_t kRowsAhead = 8;

RM_INLINE int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

#if defined(__AVX512BF16__)

RM_INLINE __m512 LoadUpTo16(const float* from, int64_t count) {
  if (count >= kWords) return _mm512_loadu_ps(from);
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
}

// Returns the 16 pairs of neighbours of 32 values of a row.
RM_INLINE Words LoadPairs(const float* from, int64_t count) {
  const __m512 second = count > kWords ? LoadUpTo16(from + kWords, count - kWords) : _mm512_setzero_ps();
  const __m512bh rounded = _mm512_cvtne2ps_pbh(second, LoadUpTo16(from, count));
  Words out;
  __builtin_memcpy(&out, &rounded, sizeof(out));
  return out;
}

// Returns the words of rows r and r + 1 (of `rows`) that begin at column c.
RM_INLINE Words PairOfRows(const float* x, int64_t ldx, int64_t r, int64_t rows, int64_t c, int64_t columns) {
  if (r >= rows || c >= columns) return Words{};
  const __m512 lower = LoadUpTo16(x + r * ldx + c, columns - c);
  const __m512 upper = r + 1 < rows ? LoadUpTo16(x + (r + 1) * ldx + c, columns - c) : _mm512_setzero_ps();
  const __m512bh rounded = _mm512_cvtne2ps_pbh(upper, lower);
  // Half i of the lower row goes to word 2 i, half i of the upper row to word 2 i + 1.
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i pairs = _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(rounded));
  Words out;
  __builtin_memcpy(&out, &pairs, sizeof(out));
  return out;
}

#else

// Rounds like ToBf16; the result is in the lower half of each word.
RM_INLINE Words RoundWords(const Words& bits) {
  const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Words quiet = (bits >> 16) | 0x40u;
  return (bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded;
}

RM_INLINE Words LoadRounded(const float* from, int64_t count) {
  Words bits = {};
  if (count >= kWords) {
    __builtin_memcpy(&bits, from, sizeof(bits));
  } else {
    uint32_t some[kWords] = {};
    for (int64_t i = 0; i < count; ++i) __builtin_memcpy(some + i, from + i, sizeof(float));
    __builtin_memcpy(&bits, some, sizeof(bits));
  }
  return RoundWords(bits);
}

// Returns the 16 pairs of neighbours of 32 values of a row.
RM_INLINE Words LoadPairs(const float* from, int64_t count) {
  const Words first = LoadRounded(from, count);
  const Words second = count > kWords ? LoadRounded(from + kWords, count - kWords) : Words{};
  const Halves halves[2] = {__builtin_convertvector(first, Halves), __builtin_convertvector(second, Halves)};
  Words out;
  __builtin_memcpy(&out, halves, sizeof(out));
  return out;
}

// Returns the words of rows r and r + 1 (of `rows`) that begin at column c.
RM_INLINE Words PairOfRows(const float* x, int64_t ldx, int64_t r, int64_t rows, int64_t c, int64_t columns) {
  if (r >= rows || c >= columns) return Words{};
  Words out = LoadRounded(x + r * ldx + c, columns - c);
  if (r + 1 < rows) out |= LoadRounded(x + (r + 1) * ldx + c, columns - c) << 16;
  return out;
}

#endif

RM_INLINE void Put(uint16_t* to, const Words& words) { __builtin_memcpy(to, &words, sizeof(words)); }

// One round of the transposition: for rows that are `distance` apart, exchanges the words `distance` apart.
#define RM_LOW(l) (((l)&kDistance) == 0 ? (l) : (l)-kDistance + 16)
#define RM_HIGH(l) (((l)&kDistance) == 0 ? (l) + kDistance : (l) + 16)
#define RM_ALL(lane)                                                                                  \
  lane(0), lane(1), lane(2), lane(3), lane(4), lane(5), lane(6), lane(7), lane(8), lane(9), lane(10), \
      lane(11), lane(12), lane(13), lane(14), lane(15)
template <int kDistance>
RM_INLINE void Exchange(Words* rows) {
  for (int i = 0; i < kWords; ++i) {
    if ((i & kDistance) != 0) continue;
    const Words a = rows[i];
    const Words b = rows[i + kDistance];
    rows[i] = __builtin_shufflevector(a, b, RM_ALL(RM_LOW));
    rows[i + kDistance] = __builtin_shufflevector(a, b, RM_ALL(RM_HIGH));
  }
}
#undef RM_ALL
#undef RM_HIGH
#undef RM_LOW

RM_INLINE void Transpose(Words* rows) {
  Exchange<1>(rows);
  Exchange<2>(rows);
  Exchange<4>(rows);
  Exchange<8>(rows);
}

}  // namespace

void PackRows(int64_t depth, int64_t columns, const float* x, int64_t ldx, uint16_t* strips, int64_t stride) {
  for (int64_t k = 0; k < RoundUp(depth, kStripDepth); k += 2) {
    const bool ahead = k + kRowsAhead + 1 < depth;
    for (int64_t c = 0; c < RoundUp(columns, kStripColumns); c += kWords) {
      if (ahead) {
        __builtin_prefetch(x + (k + kRowsAhead) * ldx + c);
        __builtin_prefetch(x + (k + kRowsAhead + 1) * ldx + c);
      }
      Put(strips + c / kStripColumns * stride + (k / 2 * kStripColumns + c % kStripColumns) * 2,
          PairOfRows(x, ldx, k, depth, c, columns));
    }
  }
}

void PackColumns(int64_t depth, int64_t columns, const float* x, int64_t ldx, uint16_t* strips,
                 int64_t stride) {
  for (int64_t c = 0; c < RoundUp(columns, kStripColumns); c += kWords) {
    uint16_t* to = strips + c / kStripColumns * stride + c % kStripColumns * 2;
    for (int64_t k = 0; k < RoundUp(depth, kStripDepth); k += 2 * kWords) {
      Words rows[kWords];
      for (int64_t i = 0; c + kWords + i < columns && i < kWords && k < depth; ++i) {
        __builtin_prefetch(x + (c + kWords + i) * ldx + k);
        __builtin_prefetch(x + (c + kWords + i) * ldx + k + kWords);
      }
      for (int64_t i = 0; i < kWords; ++i)
        rows[i] = c + i < columns && k < depth ? LoadPairs(x + (c + i) * ldx + k, depth - k) : Words{};
      Transpose(rows);
      for (int64_t i = 0; i < kWords; ++i) Put(to + (k / 2 + i) * kStripColumns * 2, rows[i]);
    }
  }
}

void TransposeToBf16(int64_t rows, int64_t columns, const float* x, int64_t ldx, uint16_t* y, int64_t ldy) {
  for (int64_t r = 0; r < rows; r += 2 * kWords)
    for (int64_t c = 0; c < columns; c += kWords) {
      Words words[kWords];
      for (int64_t i = 0; i < kWords; ++i) words[i] = PairOfRows(x, ldx, r + 2 * i, rows, c, columns);
      Transpose(words);
      for (int64_t i = 0; i < kWords && c + i < columns; ++i) Put(y + (c + i) * ldy + r, words[i]);
    }
}

}  // namespace ringmaster::engine::kernels::RINGMASTER_ISA
